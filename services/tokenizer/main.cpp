// k3-tokenizer: turns text into token ids and back (README.md).
#include <CLI/CLI.hpp>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/tokenizer/tokenizer_service.h"

using k3::tokenizer::TokenizerService;

int main(int argc, char** argv) {
  TokenizerService::Options options;
  CLI::App app("Turns text into token ids and back with the checkpoint's vocabulary.",
               "k3-tokenizer");
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
  app.add_option("--model", options.model,
                 "checkpoint directory; without a tiktoken.model there, text is refused")
      ->required();
  return k3::service_main(app, argc, argv, "k3-tokenizer",
                          [&] { return k3::ipc::serve<TokenizerService>(options); });
}
