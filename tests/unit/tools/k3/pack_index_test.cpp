// The pack and index commands: where their files go, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/packed_trunk.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"
#include "tests/unit/tools/k3/command.h"

namespace k3 {
namespace {

using testing::HasSubstr;

class PackIndexTest : public testing::Test {
 protected:
  PackIndexTest() { test::write_tiny_checkpoint(test::TinyOptions{}, model_); }

  Status pack(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"pack", "--model", model_.string()});
    return test::run_command(cli::add_pack, std::move(arguments));
  }
  Status index(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"index", "--model", model_.string()});
    return test::run_command(cli::add_index, std::move(arguments));
  }
  Checkpoint checkpoint(std::optional<int> layers = {}) {
    return Checkpoint::open(model_, {.layers = layers}).value();
  }

  test::TempDir folder_;
  std::filesystem::path model_ = folder_.path() / "a módel";
};

TEST_F(PackIndexTest, FilesGoBesideTheModel) {
  ASSERT_TRUE(pack({}));
  ASSERT_TRUE(index({}));
  EXPECT_TRUE(open_packed_trunk(model_ / ".k3", checkpoint()));
  EXPECT_TRUE(read_expert_index(model_ / ".k3", checkpoint()));
}

TEST_F(PackIndexTest, SparseShardsMakeASparseFile) {
  const auto model = folder_.path() / "sparse";
  ASSERT_TRUE(test::run_command(
      cli::add_make_checkpoint, {"make-checkpoint", "--out", model.string(), "--shape", "demo",
                                 "--sparse", "--fill-layers", "1", "--set", "hidden_size=1024"}));
  ASSERT_TRUE(test::run_command(cli::add_pack, {"pack", "--model", model.string()}));
  const Checkpoint sparse = Checkpoint::open(model, {}).value();
  const Result<UnitTable> table = open_packed_trunk(model / ".k3", sparse);
  ASSERT_TRUE(table) << table.error().message;
  struct stat info {};
  ASSERT_EQ(::stat((model / ".k3" / kPackedTrunkFile).c_str(), &info), 0);
  EXPECT_LT(static_cast<std::uint64_t>(info.st_blocks) * 512, table->pass_bytes() / 2);
}

TEST_F(PackIndexTest, FilesGoWhereTheFlagsSay) {
  const auto out = folder_.path() / "some" / "where";
  ASSERT_TRUE(pack({"--out", out.string()}));
  ASSERT_TRUE(index({"--work", out.string(), "--checksums"}));
  EXPECT_TRUE(open_packed_trunk(out, checkpoint()));
  const Result<ExpertIndex> found = read_expert_index(out, checkpoint());
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->at(1, 0).checksum);
  EXPECT_FALSE(std::filesystem::exists(model_ / ".k3"));
}

TEST_F(PackIndexTest, FirstLayersHaveAFolderOfTheirOwn) {
  ASSERT_TRUE(pack({"--layers", "2"}));
  ASSERT_TRUE(index({"--layers", "2"}));
  EXPECT_TRUE(open_packed_trunk(model_ / ".k3" / "layers-2", checkpoint(2)));
  EXPECT_TRUE(read_expert_index(model_ / ".k3" / "layers-2", checkpoint(2)));
}

TEST_F(PackIndexTest, UnitSizeMayBeAFraction) {
  ASSERT_TRUE(pack({"--unit-mb", "0.01"}));
  const Result<UnitTable> table = open_packed_trunk(model_ / ".k3", checkpoint());
  ASSERT_TRUE(table);
  EXPECT_LE(table->largest_unit_bytes(), 10'000u);
  EXPECT_GT(table->units.size(), 4u);
}

TEST_F(PackIndexTest, UnitSizeThatMakesNoSenseIsNamed) {
  for (const char* value : {"0", "-1", "nan", "1e300"}) {
    const Status status = pack({"--unit-mb", value});
    ASSERT_FALSE(status) << value;
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_THAT(status.error().message, HasSubstr("--unit-mb"));
  }
}

TEST_F(PackIndexTest, FolderThatCannotBeWrittenNamesTheFlag) {
  // A file in the way: unlike missing permissions it stops root too.
  std::ofstream(model_ / ".k3") << "in the way";
  const Status packed = pack({});
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code, ErrorCode::kOutput);
  EXPECT_THAT(packed.error().message, HasSubstr("--out"));
  const Status indexed = index({});
  ASSERT_FALSE(indexed);
  EXPECT_EQ(indexed.error().code, ErrorCode::kOutput);
  EXPECT_THAT(indexed.error().message, HasSubstr("--work"));
}

}  // namespace
}  // namespace k3
