// Wire form of the trunk service's messages (proto/trunk.capnp).
#include <cstddef>

#include "common/ipc/codec_parts.h"

namespace k3::ipc::codec {
namespace {

using Body = proto::Envelope::Body;

TrunkDescription read_description(proto::trunk::Description::Reader in) {
  TrunkDescription out;
  out.config = read_text(in.getConfig());
  out.layers = in.getLayers();
  out.units = in.getUnits();
  out.head_unit = in.getHeadUnit();
  out.slots = in.getSlots();
  out.arena_bytes = in.getArenaBytes();
  out.pass_bytes = in.getPassBytes();
  return out;
}

UnitReady read_unit_ready(proto::trunk::UnitReady::Reader in) {
  UnitReady out{in.getPass(), in.getUnit(), read_ref(in.getRef()), {}};
  for (const auto block : checked(in.getBlocks())) {
    out.blocks.push_back({block.getTensor(), block.getFirstRow(), block.getRows(),
                          block.getEncoding(), block.getOffset(), block.getLength()});
  }
  return out;
}

Rows read_rows(proto::trunk::Rows::Reader in) {
  Rows out{in.getEncoding(), in.getRowBytes(), {}};
  const auto data = in.getData();
  KJ_REQUIRE(out.row_bytes == 0 ? data.size() == 0 : data.size() % out.row_bytes == 0,
             "rows are not whole", data.size(), out.row_bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(data.begin());
  out.data.assign(bytes, bytes + data.size());
  return out;
}

}  // namespace

void write(const DescribeTrunk&, BodyBuilder body) { body.setDescribeTrunk(); }

void write(const TrunkDescription& message, BodyBuilder body) {
  auto out = body.initTrunkDescription();
  out.setConfig(as_text(message.config));
  out.setLayers(message.layers);
  out.setUnits(message.units);
  out.setHeadUnit(message.head_unit);
  out.setSlots(message.slots);
  out.setArenaBytes(message.arena_bytes);
  out.setPassBytes(message.pass_bytes);
}

void write(const Subscribe& message, BodyBuilder body) {
  auto out = body.initSubscribe();
  out.setPass(message.pass);
  out.setFirstUnit(message.first_unit);
  out.setLastUnit(message.last_unit);
}

void write(const UnitReady& message, BodyBuilder body) {
  auto out = body.initUnitReady();
  out.setPass(message.pass);
  out.setUnit(message.unit);
  write_ref(message.ref, out.initRef());
  auto blocks = out.initBlocks(static_cast<unsigned>(message.blocks.size()));
  for (unsigned i = 0; i < blocks.size(); ++i) {
    const Block& block = message.blocks[i];
    auto to = blocks[i];
    to.setTensor(block.tensor);
    to.setFirstRow(block.first_row);
    to.setRows(block.rows);
    to.setEncoding(block.encoding);
    to.setOffset(block.offset);
    to.setLength(block.length);
  }
}

void write(const UnitRelease& message, BodyBuilder body) {
  auto out = body.initUnitRelease();
  out.setPass(message.pass);
  out.setUnit(message.unit);
}

void write(const UnitFailed& message, BodyBuilder body) {
  auto out = body.initUnitFailed();
  out.setPass(message.pass);
  out.setUnit(message.unit);
  write_error(message.error, out.initError());
}

void write(const RowsRequest& message, BodyBuilder body) {
  body.initRowsRequest().setIds(as_list(message.ids));
}

void write(const Rows& message, BodyBuilder body) {
  auto out = body.initRows();
  out.setEncoding(message.encoding);
  out.setRowBytes(message.row_bytes);
  out.setData({reinterpret_cast<const kj::byte*>(message.data.data()), message.data.size()});
}

bool read_trunk(BodyReader body, Message& out) {
  switch (body.which()) {
    case Body::DESCRIBE_TRUNK:
      out = DescribeTrunk{};
      return true;
    case Body::TRUNK_DESCRIPTION:
      out = read_description(body.getTrunkDescription());
      return true;
    case Body::SUBSCRIBE: {
      const auto in = body.getSubscribe();
      out = Subscribe{in.getPass(), in.getFirstUnit(), in.getLastUnit()};
      return true;
    }
    case Body::UNIT_READY:
      out = read_unit_ready(body.getUnitReady());
      return true;
    case Body::UNIT_RELEASE: {
      const auto in = body.getUnitRelease();
      out = UnitRelease{in.getPass(), in.getUnit()};
      return true;
    }
    case Body::UNIT_FAILED: {
      const auto in = body.getUnitFailed();
      out = UnitFailed{in.getPass(), in.getUnit(), read_error(in.getError())};
      return true;
    }
    case Body::ROWS_REQUEST:
      out = RowsRequest{read_numbers<std::int32_t>(body.getRowsRequest().getIds())};
      return true;
    case Body::ROWS:
      out = read_rows(body.getRows());
      return true;
    default:
      return false;
  }
}

}  // namespace k3::ipc::codec
