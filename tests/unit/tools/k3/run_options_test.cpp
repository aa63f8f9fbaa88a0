#include "tools/k3/run_options.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/support/temp_dir.h"

namespace k3::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The message of the parse error, or "" when `flags` are accepted.
std::string parse(std::vector<std::string> flags, RunOptions& options) {
  CLI::App command("test", "run");
  add_run_flags(command, options);
  std::reverse(flags.begin(), flags.end());
  try {
    command.parse(flags);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

std::string parse(std::vector<std::string> flags) {
  RunOptions options;
  return parse(std::move(flags), options);
}

TEST(RunOptions, AcceptsEveryFlagOfAPrivatePipeline) {
  RunOptions options;
  ASSERT_EQ(parse({"--model",     "/m x",
                   "--ids",       "1,2",
                   "--gen",       "3",
                   "--trunk-gb",  "1.5",
                   "--cache-gb",  "0.25",
                   "--threads",   "2",
                   "--stop-id",   "7",
                   "--stop-id",   "9",
                   "--json",      "r.json",
                   "--work",      "w",
                   "--trunk",     "t",
                   "--recompute", "--layers",
                   "4",           "--dump-logits",
                   "l.f32",       "--dump-positions",
                   "all",         "--mla-norm-eps",
                   "1e-5",        "--chunk",
                   "7",           "--unit-mb",
                   "0.5",         "--isa",
                   "avx2",        "-v"},
                  options),
            "");
  EXPECT_EQ(options.model, "/m x");
  EXPECT_EQ(options.max_tokens, 3u);
  EXPECT_EQ(options.trunk_gb, 1.5);
  EXPECT_EQ(options.cache_gb, 0.25);
  EXPECT_THAT(options.stop_ids, ElementsAre(7, 9));
  EXPECT_EQ(options.logits_positions, ipc::LogitsWanted::kAll);
  EXPECT_EQ(options.mla_norm_eps, 1e-5);
  EXPECT_TRUE(options.recompute);
  EXPECT_TRUE(options.verbose);
}

TEST(RunOptions, NamesTheExpertServiceInAWord) {
  const auto experts = [](std::vector<std::string> words) {
    RunOptions options;
    words.insert(words.begin(), {"--model", "m", "--ids", "1", "--gen", "1"});
    EXPECT_EQ(parse(std::move(words), options), "");
    return options.experts;
  };
  EXPECT_EQ(experts({}), "k3-experts");
  EXPECT_EQ(experts({"--experts", "cache"}), "k3-experts");
  EXPECT_EQ(experts({"--experts", "pagecache"}), "k3-experts-pagecache");
  EXPECT_EQ(experts({"--experts", "k3-experts-pagecache"}), "k3-experts-pagecache");
  EXPECT_EQ(experts({"--experts", "/opt/mine"}), "/opt/mine");
}

TEST(RunOptions, RefusesValuesOutOfRangeByName) {  // C52
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--gen", "0"},       {"--gen", "-1"},        {"--gen", "2147483648"}, {"--gen", "few"},
      {"--layers", "0"},    {"--threads", "0"},     {"--chunk", "0"},        {"--stop-id", "-5"},
      {"--trunk-gb", "-1"}, {"--cache-gb", "-0.5"}, {"--trunk-gb", "nan"},   {"--cache-gb", "inf"},
      {"--unit-mb", "0"},   {"--trunk-gb", "1x"},   {"--mla-norm-eps", "-1"}};
  for (const auto& [flag, value] : wrong) {
    std::vector<std::string> flags = {"--model", "m", "--ids", "1", flag + "=" + value};
    if (flag != "--gen") flags.insert(flags.end(), {"--gen", "1"});
    const std::string message = parse(flags);
    EXPECT_THAT(message, HasSubstr(flag)) << value;
    EXPECT_THAT(message, HasSubstr('"' + value + '"')) << flag;
  }
}

TEST(RunOptions, NegativeValuesNeedNoEqualsSign) {
  EXPECT_THAT(parse({"--model", "m", "--ids", "1", "--gen", "1", "--trunk-gb", "-1"}),
              HasSubstr("\"-1\""));
  RunOptions options;
  ASSERT_EQ(parse({"--model", "m", "--ids", "-3", "--gen", "1"}, options), "");
  EXPECT_EQ(options.ids, "-3");  // refused by read_prompt, which names it
}

TEST(RunOptions, NeedsExactlyOnePrompt) {
  EXPECT_THAT(parse({"--model", "m", "--gen", "1"}), HasSubstr("--ids"));
  EXPECT_THAT(parse({"--model", "m", "--gen", "1", "--ids", "1", "--prompt", "x"}),
              HasSubstr("--prompt"));
  EXPECT_THAT(parse({"--model", "m", "--gen", "1", "--chat", "x", "--prompt-file", "f"}),
              HasSubstr("--chat"));
  EXPECT_NE(parse({"--model", "m", "--gen", "1", "--prompt", "x", "--no-think"}), "");
}

TEST(RunOptions, NeedsAModelOrAPipeline) {
  EXPECT_THAT(parse({"--ids", "1", "--gen", "1"}), HasSubstr("--model"));
  EXPECT_EQ(parse({"--pipeline", "r", "--model", "m", "--ids", "1", "--gen", "1"}), "");
}

TEST(RunOptions, FlagsOfAPrivatePipelineExcludeARunningOne) {
  EXPECT_THAT(parse({"--pipeline", "r", "--ids", "1", "--gen", "1", "--threads", "2"}),
              HasSubstr("--threads"));
}

TEST(ParseIds, NamesTheListAndTheItem) {
  EXPECT_THAT(parse_ids("0,17,2147483647").value(), ElementsAre(0, 17, 2147483647));
  for (const char* list : {"abc", "1,,2", "-3", "1,2,", "", "1, 2", "2147483648", "1.5", ","}) {
    const auto ids = parse_ids(list);
    ASSERT_FALSE(ids) << list;
    EXPECT_EQ(ids.error().code, ErrorCode::kUsage);
    EXPECT_THAT(ids.error().message, HasSubstr(list));
  }
}

TEST(ReadPrompt, TakesTheOneThatIsGiven) {
  RunOptions chat;
  chat.chat = "hello";
  chat.no_think = true;
  const Prompt turn = read_prompt(chat).value();
  EXPECT_EQ(turn.kind, Prompt::Kind::kChat);
  EXPECT_EQ(turn.text, "hello");
  EXPECT_FALSE(turn.thinking);
  EXPECT_GE(turn.most_ids(), 5u);

  const test::TempDir dir;
  RunOptions file;
  file.text_file = dir.path() / "pro mpt\xC3\xA9.txt";  // C17
  std::ofstream(*file.text_file) << "from a file\n";
  EXPECT_EQ(read_prompt(file)->text, "from a file\n");
}

TEST(ReadPrompt, RefusesAnEmptyPrompt) {
  RunOptions options;
  options.text = "";
  EXPECT_EQ(read_prompt(options).error().code, ErrorCode::kUsage);
}

TEST(ReadPrompt, ReadsAPipeToItsEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text(200'000, 'x');  // more than a pipe holds at once
  std::thread writer([&] {
    for (std::size_t at = 0; at < text.size();) {
      at += static_cast<std::size_t>(write(ends[1], text.data() + at, text.size() - at));
    }
    close(ends[1]);
  });
  RunOptions options;
  options.text_file = "/dev/fd/" + std::to_string(ends[0]);
  const auto prompt = read_prompt(options);
  writer.join();
  close(ends[0]);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(prompt->text, text);
}

TEST(ReadPrompt, NamesAFileThatCannotBeReadOrNeverEnds) {
  for (const char* path : {"/absent/prompt", "/", "/dev/zero"}) {
    RunOptions options;
    options.text_file = path;
    const auto prompt = read_prompt(options);
    ASSERT_FALSE(prompt) << path;
    EXPECT_EQ(prompt.error().code, ErrorCode::kUsage);
    EXPECT_THAT(prompt.error().message, HasSubstr(std::string("--prompt-file ") + path));
  }
}

TEST(CheckIds, NamesTheIdAndTheRange) {
  EXPECT_TRUE(check_ids({0, 255}, 256, "--ids"));
  const Status status = check_ids({1, 256}, 256, "--ids");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr("--ids 256"));
  EXPECT_THAT(status.error().message, HasSubstr("255"));
}

}  // namespace
}  // namespace k3::cli
