// k3-tokenizer: turns text into token ids and back (README.md).
#include <CLI/CLI.hpp>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/tokenizer/bench.h"
#include "services/tokenizer/tokenizer_service.h"

using k3::tokenizer::BenchOptions;
using k3::tokenizer::TokenizerService;

int main(int argc, char** argv) {
  TokenizerService::Options options;
  BenchOptions bench;
  CLI::App app("Turns text into token ids and back with the checkpoint's vocabulary.",
               "k3-tokenizer");
  CLI::Option* run =
      app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints");
  app.add_option("--model", options.model,
                 "checkpoint directory; without a tiktoken.model there, text is refused")
      ->required();
  CLI::Option* text = app.add_option("--bench", bench.text,
                                     "serve nobody: measure encoding and decoding of this file")
                          ->excludes(run);
  app.add_option("--repeat", bench.repeat, "measurements of --bench")
      ->check(CLI::Range(1, 1000))
      ->needs(text)
      ->capture_default_str();
  app.add_option("--json", bench.json, "also write the figures of --bench to this file")
      ->needs(text);
  return k3::service_main(app, argc, argv, "k3-tokenizer", [&]() -> k3::Status {
    bench.model = options.model;
    if (text->count() > 0) return k3::tokenizer::bench(bench);
    if (run->count() == 0) return k3::fail(k3::ErrorCode::kUsage, "--run is required");
    return k3::ipc::serve<TokenizerService>(options);
  });
}
