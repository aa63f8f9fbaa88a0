"""An endpoint of the run directory: lock, lifelines, ROUTER, greeting, sequence numbers (E1 to E10 of the contract)."""

import fcntl
import logging
import os
import socket
import struct

import zmq

import messages
from capnp import Malformed
from messages import FAILED, INCOMPATIBLE, NO_CONNECTION, USAGE, Refused

FILE = 1  # the kind of a region
MOST_CLIENTS = 256
QUEUE_MESSAGES = 4096
MOST_FRAME_BYTES = 256 << 20
MOST_NAME_BYTES = 128
LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class Client:
    """A connection: its lifeline, and how far both directions have come."""

    def __init__(self, lifeline):
        self.lifeline = lifeline
        self.id = None  # 16 bytes, once they have come
        self.greeted = self.closing = False
        self.received = self.sent = 0


class Endpoint:
    """Calls service.handle(client, envelope), service.counters() and service.forget(client)."""

    def __init__(self, run, name, fingerprint, files, service):
        self.fingerprint, self.files, self.service = fingerprint, files, service
        # E14: random, so that no reference to an earlier life is taken for one to this.
        self.generation = int.from_bytes(os.urandom(8), "little") | 1
        self.clients, self.by_id = {}, {}  # by descriptor of the lifeline, by connection id
        self.stopping = False
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.umask(0o177)  # all files from here on have mode 0600
        self.paths = [run / f"{name}.{kind}" for kind in ("life", "zmq")]
        self.lock = lock(run / f"{name}.lock")
        for path in self.paths:
            path.unlink(missing_ok=True)
        self.router = zmq.Context.instance().socket(zmq.ROUTER)
        for option, value in ((zmq.ROUTER_MANDATORY, 1), (zmq.SNDHWM, QUEUE_MESSAGES), (zmq.RCVHWM, QUEUE_MESSAGES),
                              (zmq.MAXMSGSIZE, MOST_FRAME_BYTES), (zmq.LINGER, 200)):
            self.router.setsockopt(option, value)
        self.router.bind(f"ipc://{self.paths[1]}")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.listener.bind(str(self.paths[0]))
        self.listener.listen(MOST_CLIENTS)
        self.poller = zmq.Poller()
        self.poller.register(self.listener, zmq.POLLIN)
        self.poller.register(self.router, zmq.POLLIN)

    def close(self):
        self.router.close()
        for path in self.paths:
            path.unlink(missing_ok=True)

    def turn(self, wait):
        """Handles what has come; with `wait` until something has."""
        ready = dict(self.poller.poll(None if wait else 0))
        self._accept()
        for descriptor in ready:
            if descriptor in self.clients:
                self._read_lifeline(self.clients[descriptor])
        for _ in range(64):  # bounded, so that a flood does not keep deaths from being seen
            try:
                identity, *frames = self.router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(identity, frames)

    def send(self, client, message, reply_to=0):
        """`message` is a tag and a body. Whoever does not read is hung up on (E33)."""
        if client.closing:
            return
        try:
            self.router.send_multipart([client.id, messages.envelope(*message, client.sent + 1, reply_to)], zmq.NOBLOCK)
            client.sent += 1
        except zmq.ZMQError:
            self._hang_up(client)

    # Lifelines

    def _accept(self):
        while True:
            try:
                lifeline = self.listener.accept()[0]
            except BlockingIOError:
                break
            if len(self.clients) >= MOST_CLIENTS and not self._make_room():
                lifeline.close()
                continue
            lifeline.setblocking(False)
            self.clients[lifeline.fileno()] = Client(lifeline)
            self.poller.register(lifeline.fileno(), zmq.POLLIN)
        for client in [it for it in self.clients.values() if it.id is None]:
            self._read_lifeline(client)

    def _make_room(self):
        silent = next((it for it in self.clients.values() if not it.greeted), None)
        if silent:
            self._drop(silent)
        return silent is not None

    def _read_lifeline(self, client):
        """The id comes first; then only the end, which is the client's death."""
        try:
            packet = client.lifeline.recv(64)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if client.id or len(packet) != 16 or packet[0] == 0 or packet in self.by_id:
            return self._drop(client)
        client.id = packet
        self.by_id[packet] = client
        regions = b"".join(struct.pack("=IIQQ", number, FILE, self.generation, os.fstat(file).st_size)
                           for number, file in enumerate(self.files))
        try:
            socket.send_fds(client.lifeline, [struct.pack("=II", 1, len(self.files)) + regions], self.files)
        except OSError:
            self._drop(client)

    def _drop(self, client):
        self.poller.unregister(client.lifeline.fileno())
        del self.clients[client.lifeline.fileno()]
        self.by_id.pop(client.id, None)
        client.closing = True
        client.lifeline.close()
        self.service.forget(client)

    @staticmethod
    def _hang_up(client):
        """Its end of file comes in a later turn, and with it _drop."""
        client.closing = True
        client.lifeline.shutdown(socket.SHUT_RDWR)

    # Messages

    def _receive(self, identity, frames):
        if identity not in self.by_id:
            self._accept()  # its lifeline may have come after this turn began
        client = self.by_id.get(identity)
        if client is None:
            return self._refuse_stranger(identity)
        if client.closing:
            return
        try:
            if len(frames) != 1:
                raise Malformed(f"a message of {len(frames)} frames")
            envelope = messages.Envelope(frames[0])
        except Malformed as error:
            return self.send(client, messages.error(FAILED, f"malformed frame: {error}"))
        except Refused as error:
            return self.send(client, messages.error(error.code, str(error)))
        client.received += 1
        if envelope.sequence != client.received:
            return self._hang_up(client)
        try:
            self._handle(client, envelope)
        except Malformed as error:
            self.send(client, messages.error(FAILED, f"malformed message: {error}"), envelope.sequence)
        except Refused as error:
            self.send(client, messages.error(error.code, str(error)), envelope.sequence)

    def _refuse_stranger(self, identity):
        message = messages.error(NO_CONNECTION, "this connection has no lifeline")
        try:
            self.router.send_multipart([identity, messages.envelope(*message, 1, 0)], zmq.NOBLOCK)
        except zmq.ZMQError:
            pass  # no way back

    def _handle(self, client, envelope):
        if envelope.tag > messages.LAST_KNOWN:
            raise Refused(FAILED, f"message {envelope.tag} is not known here")
        if envelope.tag == messages.HELLO:
            return self._greet(client, envelope)
        if not client.greeted:
            raise Refused(USAGE, "the first message must be hello")
        if envelope.tag == messages.STATS_REQUEST:
            self.send(client, messages.stats(self.service.counters()), envelope.sequence)
        elif envelope.tag == messages.SET_LOG_LEVEL:
            level = envelope.root.text(1)
            if level not in LEVELS:
                raise Refused(USAGE, f"log level {level}: expected one of {', '.join(LEVELS)}")
            logging.getLogger().setLevel(LEVELS[level])
            self.send(client, messages.stats({}), envelope.sequence)
        elif envelope.tag == messages.STOP:
            self.stopping = True
        else:
            self.service.handle(client, envelope)

    def _greet(self, client, envelope):
        role, fingerprint = envelope.body().text(0), envelope.body().text(1)
        if max(len(role.encode()), len(fingerprint.encode())) > MOST_NAME_BYTES:
            raise Refused(USAGE, f"role and fingerprint have at most {MOST_NAME_BYTES} bytes")
        if fingerprint and fingerprint != self.fingerprint:
            raise Refused(INCOMPATIBLE, f"model {self.fingerprint} is served, {role} expects {fingerprint}")
        client.greeted = True
        logging.info("client_up role=%s", role)
        self.send(client, messages.welcome(self.fingerprint), envelope.sequence)


def lock(path):
    """Holds the lock file at `path`, process id inside. SystemExit if another process has it."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{path}: another process serves here") from None
        # The holder before us may have removed it on its way out; then ours is no longer this file.
        if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            break
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
