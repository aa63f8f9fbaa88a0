// Wire form of the experts service's messages (proto/experts.capnp).
#include "common/ipc/codec_parts.h"

namespace k3::ipc::codec {
namespace {

using Body = proto::Envelope::Body;
using WireSource = proto::experts::Source;

static_assert(static_cast<std::uint16_t>(WireSource::HIT) ==
              static_cast<std::uint16_t>(ExpertOrigin::kHit));
static_assert(static_cast<std::uint16_t>(WireSource::PREFETCHED) ==
              static_cast<std::uint16_t>(ExpertOrigin::kPrefetched));
static_assert(static_cast<std::uint16_t>(WireSource::MISS) ==
              static_cast<std::uint16_t>(ExpertOrigin::kMiss));

ArrivedExpert read_expert(proto::experts::Expert::Reader in) {
  ArrivedExpert out{in.getExpert(), read_enum(in.getSource(), ExpertOrigin::kMiss), {}};
  for (const auto part : checked(in.getParts())) out.parts.push_back(read_ref(part));
  return out;
}

Arrived read_arrived(proto::experts::Arrived::Reader in) {
  Arrived out{in.getBatch(), {}};
  for (const auto expert : checked(in.getExperts())) out.experts.push_back(read_expert(expert));
  return out;
}

}  // namespace

void write(const DescribeExperts&, BodyBuilder body) { body.setDescribeExperts(); }

void write(const ExpertsDescription& message, BodyBuilder body) {
  auto out = body.initExpertsDescription();
  out.setLayers(message.layers);
  out.setExperts(message.experts);
  out.setSlots(message.slots);
  out.setExpertBytes(message.expert_bytes);
  out.setArenaBytes(message.arena_bytes);
}

void write(const Fetch& message, BodyBuilder body) {
  auto out = body.initFetch();
  out.setBatch(message.batch);
  out.setLayer(message.layer);
  out.setExperts(as_list(message.experts));
  out.setUrgency(message.urgency);
}

void write(const Arrived& message, BodyBuilder body) {
  auto out = body.initArrived();
  out.setBatch(message.batch);
  auto experts = out.initExperts(static_cast<unsigned>(message.experts.size()));
  for (unsigned i = 0; i < experts.size(); ++i) {
    const ArrivedExpert& expert = message.experts[i];
    auto to = experts[i];
    to.setExpert(expert.expert);
    to.setSource(static_cast<WireSource>(expert.source));
    auto parts = to.initParts(static_cast<unsigned>(expert.parts.size()));
    for (unsigned p = 0; p < parts.size(); ++p) write_ref(expert.parts[p], parts[p]);
  }
}

void write(const ExpertFailed& message, BodyBuilder body) {
  auto out = body.initExpertFailed();
  out.setBatch(message.batch);
  out.setLayer(message.layer);
  out.setExpert(message.expert);
  write_error(message.error, out.initError());
}

void write(const BatchRelease& message, BodyBuilder body) {
  body.initBatchRelease().setBatch(message.batch);
}

void write(const Hint& message, BodyBuilder body) {
  auto out = body.initHint();
  out.setLayer(message.layer);
  out.setExperts(as_list(message.experts));
}

bool read_experts(BodyReader body, Message& out) {
  switch (body.which()) {
    case Body::DESCRIBE_EXPERTS:
      out = DescribeExperts{};
      return true;
    case Body::EXPERTS_DESCRIPTION: {
      const auto in = body.getExpertsDescription();
      out = ExpertsDescription{in.getLayers(), in.getExperts(), in.getSlots(), in.getExpertBytes(),
                               in.getArenaBytes()};
      return true;
    }
    case Body::FETCH: {
      const auto in = body.getFetch();
      out = Fetch{in.getBatch(), in.getLayer(), read_numbers<std::uint32_t>(in.getExperts()),
                  in.getUrgency()};
      return true;
    }
    case Body::ARRIVED:
      out = read_arrived(body.getArrived());
      return true;
    case Body::EXPERT_FAILED: {
      const auto in = body.getExpertFailed();
      out = ExpertFailed{in.getBatch(), in.getLayer(), in.getExpert(), read_error(in.getError())};
      return true;
    }
    case Body::BATCH_RELEASE:
      out = BatchRelease{body.getBatchRelease().getBatch()};
      return true;
    case Body::HINT: {
      const auto in = body.getHint();
      out = Hint{in.getLayer(), read_numbers<std::uint32_t>(in.getExperts())};
      return true;
    }
    default:
      return false;
  }
}

}  // namespace k3::ipc::codec
