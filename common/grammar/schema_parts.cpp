// The parts of a schema that are read before anything is built of them.
#include <algorithm>
#include <cmath>

#include "common/grammar/schema_compiler.h"

namespace k3::grammar {
namespace {

constexpr std::size_t kMaxBranches = 64;
constexpr std::size_t kMaxCount = 65536;
constexpr int kMaxOverlapDepth = 16;

}  // namespace

std::optional<SchemaCompiler::Types> SchemaCompiler::types(const Json& schema,
                                                           const std::string& path) {
  Types found;
  const bool literal = schema.contains("enum") || schema.contains("const");
  if (!schema.contains("type")) {
    // Keywords of one type and no type: that type is meant.
    const auto has = [&schema](std::initializer_list<const char*> keywords) {
      return std::ranges::any_of(keywords, [&](const char* key) { return schema.contains(key); });
    };
    if (has({"properties", "required", "additionalProperties"})) found.any.push_back(Type::kObject);
    if (has({"items", "minItems", "maxItems"})) found.any.push_back(Type::kArray);
    if (has({"minLength", "maxLength"})) found.any.push_back(Type::kString);
    if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
      found.any.push_back(Type::kNumber);
    }
    if (found.any.empty() || literal) found.any.assign(std::begin(kTypes), std::end(kTypes));
    return found;
  }
  const Json& given = schema["type"];
  const Json list = given.is_array() ? given : Json::array({given});
  bool number = false;
  for (const Json& name : list) {
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    if (text == "number") number = true;
    if (text == "integer") found.whole = true;
    if (text == "string")
      found.any.push_back(Type::kString);
    else if (text == "number" || text == "integer")
      found.any.push_back(Type::kNumber);
    else if (text == "boolean")
      found.any.push_back(Type::kBoolean);
    else if (text == "null")
      found.any.push_back(Type::kNull);
    else if (text == "object")
      found.any.push_back(Type::kObject);
    else if (text == "array")
      found.any.push_back(Type::kArray);
    else {
      refuse(path, fmt::format("type \"{}\" is unknown", text));
      return std::nullopt;
    }
  }
  found.whole = found.whole && !number;
  return found;
}

std::optional<SchemaCompiler::Place> SchemaCompiler::resolve(const Json& schema,
                                                             const std::string& path) {
  const Json& reference = schema["$ref"];
  const std::string text = reference.is_string() ? reference.get<std::string>() : reference.dump();
  if (text == "#") return Place{&document_, "#"};
  if (text.starts_with("#/")) {
    try {
      return Place{&document_.at(Json::json_pointer(text.substr(1))), text};
    } catch (const Json::exception&) {
      // No such place, or no pointer: refused below.
    }
  }
  refuse(path, fmt::format("\"$ref\" {} is not a place in this schema", text));
  return std::nullopt;
}

std::vector<SchemaCompiler::Place> SchemaCompiler::branches(const Json& schema,
                                                            const std::string& path) {
  std::vector<Place> found;
  if (schema.contains("$ref")) {
    if (auto target = resolve(schema, path)) found.push_back(std::move(*target));
    return found;
  }
  const std::string keyword = schema.contains("anyOf") ? "anyOf" : "oneOf";
  const Json& list = schema[keyword];
  if (!list.is_array() || list.empty() || list.size() > kMaxBranches) {
    refuse(path, fmt::format("\"{}\" must be a list of 1 to {} schemas", keyword, kMaxBranches));
    return found;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    found.push_back({&list[i], fmt::format("{}/{}/{}", path, keyword, i)});
  }
  for (std::size_t i = 0; keyword == "oneOf" && i < list.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!may_overlap(list[i], list[j], 0)) continue;
      refuse(path, fmt::format("keyword \"oneOf\": schemas {} and {} may both hold", j, i));
      return {};
    }
  }
  return found;
}

// Whether a value may conform to both, as far as types, enum, const and a required property with
// disjoint values tell.
bool SchemaCompiler::may_overlap(const Json& one, const Json& other, int depth) {
  if (++visits_ > kMaxVisits || depth > kMaxOverlapDepth || !one.is_object() || !other.is_object())
    return true;
  for (const Json* side : {&one, &other}) {
    const Json& opposite = side == &one ? other : one;
    if (side->contains("$ref")) {
      const auto target = resolve(*side, "#");
      return !target || may_overlap(*target->schema, opposite, depth + 1);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!side->contains(keyword)) continue;
      return std::ranges::any_of((*side)[keyword], [&](const Json& branch) {
        return may_overlap(branch, opposite, depth + 1);
      });
    }
  }
  const auto values = [](const Json& schema) {
    return schema.contains("const") ? Json::array({schema["const"]}) : schema.value("enum", Json());
  };
  const Json one_values = values(one);
  const Json other_values = values(other);
  if (one_values.is_array() && other_values.is_array()) {
    return std::ranges::any_of(one_values, [&](const Json& value) {
      return std::ranges::find(other_values, value) != other_values.end();
    });
  }
  const auto one_types = types(one, "#");
  const auto other_types = types(other, "#");
  if (!one_types || !other_types) return true;
  std::vector<Type> both;
  for (const Type type : one_types->any) {
    if (std::ranges::count(other_types->any, type) > 0) both.push_back(type);
  }
  if (both.empty()) return false;
  if (both != std::vector{Type::kObject}) return true;
  const Json one_required = one.value("required", Json::array());
  const Json other_required = other.value("required", Json::array());
  for (const Json& name : one_required) {
    if (std::ranges::find(other_required, name) == other_required.end() || !name.is_string()) {
      continue;
    }
    const Json a = one.value("properties", Json::object()).value(name.get<std::string>(), Json());
    const Json b = other.value("properties", Json::object()).value(name.get<std::string>(), Json());
    if (!may_overlap(a, b, depth + 1)) return false;
  }
  return true;
}

Count SchemaCompiler::count(const Json& schema, const std::string& path, const char* least,
                            const char* most) {
  const auto read = [&](const char* keyword) -> std::optional<std::size_t> {
    if (!schema.contains(keyword)) return std::nullopt;
    const Json& value = schema[keyword];
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxCount) {
      refuse(path, fmt::format("\"{}\" is {}, expected 0 to {}", keyword, value.dump(), kMaxCount));
      return std::nullopt;
    }
    return value.get<std::size_t>();
  };
  const std::size_t at_least = read(least).value_or(0);
  return {at_least, read(most)};
}

// The tighter of minimum and exclusiveMinimum, or of the maxima.
std::optional<Bound> SchemaCompiler::bound(const Json& schema, const std::string& path, bool least,
                                           bool whole) {
  std::optional<Bound> found;
  const double limit = whole ? 999'999'999'999'999.0 : static_cast<double>(kMaxNumberBound);
  for (const bool exclusive : {false, true}) {
    const char* keyword = least ? (exclusive ? "exclusiveMinimum" : "minimum")
                                : (exclusive ? "exclusiveMaximum" : "maximum");
    if (!schema.contains(keyword)) continue;
    const Json& given = schema[keyword];
    const double value = given.is_number() ? given.get<double>() : std::nan("");
    const bool integer = std::floor(value) == value;
    if (!(std::fabs(value) <= limit) || (!integer && !whole)) {
      refuse(path, fmt::format("\"{}\" is {}, expected {} within {:.0f} of 0", keyword,
                               given.dump(), whole ? "a number" : "a whole number", limit));
      return std::nullopt;
    }
    Bound bound{static_cast<std::int64_t>(least ? std::ceil(value) : std::floor(value)), exclusive};
    if (whole) {
      if (exclusive && integer) bound.value += least ? 1 : -1;
      bound.exclusive = false;
    }
    const bool tighter =
        !found || (least ? bound.value > found->value : bound.value < found->value);
    if (tighter || (bound.value == found->value && exclusive)) found = bound;
  }
  return found;
}

}  // namespace k3::grammar
