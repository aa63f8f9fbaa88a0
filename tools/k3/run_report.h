// Fills the report of a run from the generation and the pipeline's counters.
#pragma once

#include <string>

#include "common/ipc/messages.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/report.h"
#include "tools/k3/run_generation.h"

namespace k3::cli {

// What the services said of themselves.
struct PipelineFacts {
  ipc::TokenizerDescription tokenizer;
  ipc::TrunkDescription trunk;
  ipc::ExpertsDescription experts;
  ipc::ComputeDescription compute;
  std::string fingerprint;
};

// Everything but model, text and peak_memory_bytes, which are the caller's.
RunReport make_report(PipelineLink& link, const PipelineFacts& facts,
                      const GenerationRequest& request, const Generation& generation);

}  // namespace k3::cli
