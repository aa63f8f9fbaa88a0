// Wire form of the compute worker's messages (proto/compute.capnp).
#include "common/ipc/codec_parts.h"

namespace k3::ipc::codec {
namespace {

using Body = proto::Envelope::Body;
using WireLogits = proto::compute::LogitsWanted;
using WireReason = proto::compute::FinishReason;

static_assert(static_cast<std::uint16_t>(WireLogits::NONE) ==
              static_cast<std::uint16_t>(LogitsWanted::kNone));
static_assert(static_cast<std::uint16_t>(WireLogits::LAST) ==
              static_cast<std::uint16_t>(LogitsWanted::kLast));
static_assert(static_cast<std::uint16_t>(WireLogits::ALL) ==
              static_cast<std::uint16_t>(LogitsWanted::kAll));
static_assert(static_cast<std::uint16_t>(WireReason::LENGTH) ==
              static_cast<std::uint16_t>(FinishReason::kLength));
static_assert(static_cast<std::uint16_t>(WireReason::STOP) ==
              static_cast<std::uint16_t>(FinishReason::kStop));
static_assert(static_cast<std::uint16_t>(WireReason::CANCELLED) ==
              static_cast<std::uint16_t>(FinishReason::kCancelled));

void write_timings(const Timings& timings, proto::compute::Timings::Builder out) {
  out.setTotal(timings.total_ns);
  out.setWaitTrunk(timings.wait_trunk_ns);
  out.setWaitExperts(timings.wait_experts_ns);
  out.setMessaging(timings.messaging_ns);
}

Timings read_timings(proto::compute::Timings::Reader in) {
  return {in.getTotal(), in.getWaitTrunk(), in.getWaitExperts(), in.getMessaging()};
}

ComputeDescription read_description(proto::compute::Description::Reader in) {
  return {in.getLayers(),         in.getModelLayers(), in.getVocab(),
          read_text(in.getIsa()), in.getThreads(),     in.getPlannedBytes()};
}

Generate read_generate(proto::compute::Generate::Reader in) {
  Generate out;
  out.request = in.getRequest();
  out.prompt_ids = read_numbers<std::int32_t>(in.getPromptIds());
  out.max_tokens = in.getMaxTokens();
  out.stop_ids = read_numbers<std::int32_t>(in.getStopIds());
  out.logits = read_enum(in.getLogits(), LogitsWanted::kAll);
  out.recompute = in.getRecompute();
  return out;
}

}  // namespace

void write(const DescribeCompute&, BodyBuilder body) { body.setDescribeCompute(); }

void write(const ComputeDescription& message, BodyBuilder body) {
  auto out = body.initComputeDescription();
  out.setLayers(message.layers);
  out.setModelLayers(message.model_layers);
  out.setVocab(message.vocab);
  out.setIsa(as_text(message.isa));
  out.setThreads(message.threads);
  out.setPlannedBytes(message.planned_bytes);
}

void write(const Generate& message, BodyBuilder body) {
  auto out = body.initGenerate();
  out.setRequest(message.request);
  out.setPromptIds(as_list(message.prompt_ids));
  out.setMaxTokens(message.max_tokens);
  out.setStopIds(as_list(message.stop_ids));
  out.setLogits(static_cast<WireLogits>(message.logits));
  out.setRecompute(message.recompute);
}

void write(const Cancel& message, BodyBuilder body) {
  body.initCancel().setRequest(message.request);
}

void write(const Progress& message, BodyBuilder body) {
  auto out = body.initProgress();
  out.setRequest(message.request);
  out.setDone(message.done);
  out.setTotal(message.total);
}

void write(const Token& message, BodyBuilder body) {
  auto out = body.initToken();
  out.setRequest(message.request);
  out.setIndex(message.index);
  out.setPosition(message.position);
  out.setId(message.id);
  write_timings(message.timings, out.initTimings());
}

void write(const Logits& message, BodyBuilder body) {
  auto out = body.initLogits();
  out.setRequest(message.request);
  out.setPosition(message.position);
  out.setValues(as_list(message.values));
}

void write(const Finished& message, BodyBuilder body) {
  auto out = body.initFinished();
  out.setRequest(message.request);
  out.setReason(static_cast<WireReason>(message.reason));
  write_timings(message.prefill, out.initPrefill());
}

bool read_compute(BodyReader body, Message& out) {
  switch (body.which()) {
    case Body::DESCRIBE_COMPUTE:
      out = DescribeCompute{};
      return true;
    case Body::COMPUTE_DESCRIPTION:
      out = read_description(body.getComputeDescription());
      return true;
    case Body::GENERATE:
      out = read_generate(body.getGenerate());
      return true;
    case Body::CANCEL:
      out = Cancel{body.getCancel().getRequest()};
      return true;
    case Body::PROGRESS: {
      const auto in = body.getProgress();
      out = Progress{in.getRequest(), in.getDone(), in.getTotal()};
      return true;
    }
    case Body::TOKEN: {
      const auto in = body.getToken();
      out = Token{in.getRequest(), in.getIndex(), in.getPosition(), in.getId(),
                  read_timings(in.getTimings())};
      return true;
    }
    case Body::LOGITS: {
      const auto in = body.getLogits();
      out = Logits{in.getRequest(), in.getPosition(), read_numbers<float>(in.getValues())};
      return true;
    }
    case Body::FINISHED: {
      const auto in = body.getFinished();
      out = Finished{in.getRequest(), read_enum(in.getReason(), FinishReason::kCancelled),
                     read_timings(in.getPrefill())};
      return true;
    }
    default:
      return false;
  }
}

}  // namespace k3::ipc::codec
