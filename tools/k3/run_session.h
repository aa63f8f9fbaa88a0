// One run over a pipeline that is starting or running: prompt in, text, report and files out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_report.h"

namespace k3::cli {

// Asks every stage what it is. Errors as PipelineLink::ask(); kFailed for an answer of another
// kind.
Result<PipelineFacts> describe(PipelineLink& link);

struct SessionSetup {
  std::filesystem::path run_dir;
  int stop_fd = -1;              // a stop_signal_fd(); -1 for none
  std::string fingerprint = {};  // of the model expected; empty: checked against --model, if given
  // A private pipeline's counters all belong to this run; of a shared one only what is added.
  bool own_pipeline = false;
};

// Connects, generates, prints text to stdout and all else to stderr, writes the files asked for.
// Errors: kStopped after a stop signal, kOutput when a file could not be written (the results are
// on the terminal) or stdout takes no more, else why there is no result. The files are written also
// after an error, once there was a token.
Status run_session(const RunOptions& options, const Prompt& prompt, const SessionSetup& setup);

}  // namespace k3::cli
