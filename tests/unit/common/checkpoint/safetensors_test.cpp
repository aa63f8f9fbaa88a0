#include "common/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/unit/support/reference_data.h"
#include "tests/unit/support/temp_dir.h"

namespace k3 {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kDataStart = 1000;

Result<std::vector<TensorEntry>> parse(std::string_view json, std::uint64_t data_bytes) {
  return parse_safetensors_header(json, kDataStart, kDataStart + data_bytes, "dir/a.safetensors");
}

// The message of a refusal; empty when the header is accepted.
std::string refusal(std::string_view json, std::uint64_t data_bytes) {
  const auto parsed = parse(json, data_bytes);
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kWeights);
  EXPECT_THAT(parsed.error().message, HasSubstr("dir/a.safetensors"));
  return parsed.error().message;
}

TEST(Safetensors, ReadsTensorsInOrderOfOffset) {
  const auto tensors = parse(R"({
    "__metadata__": {"format": "pt", "dtype": "none"},
    "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [16, 28]},
    "a": {"data_offsets": [0, 16], "dtype": "F32", "shape": [4]}
  })",
                             28);
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kF32);
  EXPECT_EQ((*tensors)[0].offset, kDataStart);
  EXPECT_EQ((*tensors)[0].bytes, 16u);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].dtype, DType::kBf16);
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[1].offset, kDataStart + 16);
}

TEST(Safetensors, ReadsScalarsAndEmptyTensors) {
  const auto tensors = parse(R"({
    "scalar": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},
    "empty": {"dtype": "F32", "shape": [0, 8], "data_offsets": [8, 8]},
    "after": {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]}
  })",
                             9);
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_THAT((*tensors)[0].shape, IsEmpty());
  EXPECT_EQ((*tensors)[0].bytes, 8u);
  EXPECT_EQ((*tensors)[1].name, "empty");
  EXPECT_EQ((*tensors)[1].bytes, 0u);
  EXPECT_EQ((*tensors)[2].name, "after");
}

TEST(Safetensors, UnescapesNames) {
  const auto tensors =
      parse(R"({"a\"b\\c\u00e9\n": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1);
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->front().name, "a\"b\\c\xc3\xa9\n");
}

TEST(Safetensors, KnowsElementSizes) {
  EXPECT_EQ(bytes_of(DType::kBool), 1u);
  EXPECT_EQ(bytes_of(DType::kI16), 2u);
  EXPECT_EQ(bytes_of(DType::kF16), 2u);
  EXPECT_EQ(bytes_of(DType::kI32), 4u);
  EXPECT_EQ(bytes_of(DType::kI64), 8u);
  EXPECT_EQ(name_of(DType::kBf16), "BF16");
  EXPECT_EQ(name_of(DType::kBool), "BOOL");
}

TEST(Safetensors, RefusesOverlaps) {
  EXPECT_THAT(refusal(R"({"first": {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]},
                          "second": {"dtype": "U8", "shape": [10], "data_offsets": [9, 19]}})",
                      19),
              AllOf(HasSubstr("overlap"), HasSubstr("first"), HasSubstr("1010"),
                    HasSubstr("second"), HasSubstr("1009")));
  EXPECT_THAT(refusal(R"({"whole": {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]},
                          "within": {"dtype": "F32", "shape": [0], "data_offsets": [5, 5]}})",
                      10),
              AllOf(HasSubstr("overlap"), HasSubstr("whole"), HasSubstr("within")));
}

TEST(Safetensors, RefusesGaps) {
  EXPECT_THAT(refusal(R"({"first": {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]},
                          "second": {"dtype": "U8", "shape": [10], "data_offsets": [11, 21]}})",
                      21),
              AllOf(HasSubstr("gap"), HasSubstr("first"), HasSubstr("1010"), HasSubstr("second"),
                    HasSubstr("1011")));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})", 2),
              AllOf(HasSubstr("gap"), HasSubstr("header")));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 3),
              AllOf(HasSubstr("1001"), HasSubstr("1003")));
}

TEST(Safetensors, RefusesSpansOutsideTheFile) {
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [11], "data_offsets": [0, 11]}})", 10),
              AllOf(HasSubstr("tensor a"), HasSubstr("0..11"), HasSubstr("10 data bytes")));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [2, 1]}})", 10),
              HasSubstr("2..1"));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1],
                          "data_offsets": [18446744073709551615, 0]}})",
                      10),
              HasSubstr("tensor a"));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1],
                          "data_offsets": [18446744073709551614, 18446744073709551615]}})",
                      10),
              HasSubstr("tensor a"));
}

TEST(Safetensors, RefusesSizesThatDoNotMatchTheShape) {
  EXPECT_THAT(refusal(R"({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 8]}})", 8),
              AllOf(HasSubstr("tensor a"), HasSubstr("[2,2]"), HasSubstr("16"), HasSubstr("8")));
  EXPECT_THAT(
      refusal(R"({"a": {"dtype": "U8", "shape": [1099511627776], "data_offsets": [0, 8]}})", 8),
      HasSubstr("1099511627776"));
}

TEST(Safetensors, RefusesOverflowOfTheShape) {
  // Each product is 0 or 8 modulo 2^64.
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [4294967296, 4294967296],
                          "data_offsets": [0, 0]}})",
                      0),
              AllOf(HasSubstr("tensor a"), HasSubstr("overflow")));
  EXPECT_THAT(refusal(R"({"a": {"dtype": "F64", "shape": [2305843009213693953],
                          "data_offsets": [0, 8]}})",
                      8),
              HasSubstr("overflow"));
}

TEST(Safetensors, RefusesNumbersThatAreNotSizes) {
  for (const std::string shape : {"[-1]", "[1.0]", "[true]", "[\"1\"]", "[null]", "[[1]]"}) {
    EXPECT_THAT(
        refusal(R"({"a": {"dtype": "U8", "shape": )" + shape + R"(, "data_offsets": [0, 1]}})", 1),
        AllOf(HasSubstr("tensor a"), HasSubstr("shape")))
        << shape;
  }
  for (const std::string span : {"[-1, 0]", "[0]", "[0, 1, 1]", "[0, 1.0]", "[]"}) {
    EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": )" + span + "}}", 1),
                AllOf(HasSubstr("tensor a"), HasSubstr("data_offsets")))
        << span;
  }
}

TEST(Safetensors, RefusesUnknownDtypes) {
  EXPECT_THAT(refusal(R"({"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}})", 1),
              AllOf(HasSubstr("tensor a"), HasSubstr("F8")));
}

TEST(Safetensors, RefusesIncompleteEntries) {
  for (const std::string entry : {
           R"({"shape": [1], "data_offsets": [0, 1]})",
           R"({"dtype": "U8", "data_offsets": [0, 1]})",
           R"({"dtype": "U8", "shape": [1]})",
           R"({"dtype": "U8", "dtype": "U8", "shape": [1], "data_offsets": [0, 1]})",
           R"({"dtype": 1, "shape": [1], "data_offsets": [0, 1]})",
           R"({"dtype": "U8", "shape": 1, "data_offsets": [0, 1]})",
           R"([])",
           R"("U8")",
       }) {
    EXPECT_THAT(refusal("{\"a\": " + entry + "}", 1), HasSubstr("tensor a")) << entry;
  }
}

TEST(Safetensors, RefusesANameListedTwice) {
  EXPECT_THAT(refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                          "\u0061": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
                      2),
              AllOf(HasSubstr("tensor a"), HasSubstr("twice")));
}

TEST(Safetensors, RefusesInvalidJson) {
  const std::string whole = R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
  ASSERT_EQ(refusal(whole, 1), "");
  EXPECT_EQ(refusal(whole + "   \n", 1), "");  // padding, as writers add
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(refusal(std::string_view(whole).substr(0, length), 1), "") << length;
  }
  EXPECT_NE(refusal(whole + "}", 1), "");
  EXPECT_NE(refusal(whole + std::string(1, '\0'), 1), "");
  EXPECT_NE(refusal("[]", 0), "");
  EXPECT_NE(refusal("{\"\xff\": 1}", 0), "");
}

// Writes a file that begins with `header_bytes` as its header's length.
std::filesystem::path write_shard(const test::TempDir& dir, std::uint64_t header_bytes,
                                  const std::string& rest) {
  const std::filesystem::path path = dir.path() / "m.safetensors";
  std::ofstream file(path, std::ios::binary);
  for (int byte = 0; byte < 8; ++byte) file.put(static_cast<char>(header_bytes >> (8 * byte)));
  file << rest;
  return path;
}

TEST(ShardHeader, ReadsAFile) {
  const test::TempDir dir;
  const std::string json = R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})";
  const auto header = read_shard_header(write_shard(dir, json.size(), json + "xyz"));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->json, json);
  EXPECT_EQ(header->data_start, 8 + json.size());
  EXPECT_EQ(header->file_bytes, 8 + json.size() + 3);
  EXPECT_EQ(header->tensors.front().offset, header->data_start);
}

TEST(ShardHeader, RefusesEveryTruncation) {
  const test::TempDir dir;
  const std::string json = R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})";
  const std::filesystem::path path = write_shard(dir, json.size(), json + "xyz");
  for (std::uint64_t size = std::filesystem::file_size(path); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    const auto header = read_shard_header(path);
    ASSERT_FALSE(header) << size;
    EXPECT_EQ(header.error().code, ErrorCode::kWeights);
    EXPECT_THAT(header.error().message, HasSubstr("m.safetensors")) << size;
  }
}

TEST(ShardHeader, RefusesHeadersLargerThanTheFile) {
  const test::TempDir dir;
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    const auto header = read_shard_header(write_shard(dir, length, "{}"));
    ASSERT_FALSE(header) << length;
    EXPECT_THAT(header.error().message,
                AllOf(HasSubstr("m.safetensors"), HasSubstr(std::to_string(length)),
                      HasSubstr("file of 10")))
        << length;
  }
}

TEST(ShardHeader, RefusesHeadersAboveTheLimit) {
  const test::TempDir dir;
  const std::uint64_t length = (std::uint64_t{256} << 20) + 1;
  const std::filesystem::path path = write_shard(dir, length, "{}");
  std::filesystem::resize_file(path, length + 8);
  const auto header = read_shard_header(path);
  ASSERT_FALSE(header);
  EXPECT_THAT(header.error().message, AllOf(HasSubstr("268435457"), HasSubstr("268435456")));
}

TEST(ShardHeader, NamesAMissingFile) {
  const test::TempDir dir;
  const auto header = read_shard_header(dir.path() / "absent.safetensors");
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, ErrorCode::kWeights);
  EXPECT_THAT(header.error().message, HasSubstr("absent.safetensors"));
}

TEST(ShardHeader, ReadsTheReferenceShards) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto first = read_shard_header(reference / "st/model-00001-of-00002.safetensors");
  ASSERT_TRUE(first) << first.error().message;
  const auto second = read_shard_header(reference / "st/model-00002-of-00002.safetensors");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(first->tensors.size() + second->tensors.size(), 13u);
  const auto named = [](const ShardHeader& header, const std::string& name) {
    const auto found = std::find_if(header.tensors.begin(), header.tensors.end(),
                                    [&](const TensorEntry& tensor) { return tensor.name == name; });
    return found == header.tensors.end() ? TensorEntry{} : *found;
  };
  EXPECT_THAT(named(*first, "packed.u8.2d").shape, ElementsAre(7, 32));
  EXPECT_EQ(named(*first, "packed.u8.2d").dtype, DType::kU8);
  EXPECT_EQ(named(*first, "packed.u8.2d").offset, first->data_start + 1408);
  EXPECT_EQ(named(*first, "tricky.f16.1d").dtype, DType::kF16);
  EXPECT_EQ(named(*first, "scalar.f32").bytes, 4u);
  EXPECT_THAT(named(*first, "scalar.f32").shape, IsEmpty());
  EXPECT_THAT(named(*first, "empty.f32").shape, ElementsAre(0, 8));
  EXPECT_THAT(named(*second, "weird\\name.\"with\"quotes").shape, ElementsAre(3));
}

}  // namespace
}  // namespace k3
