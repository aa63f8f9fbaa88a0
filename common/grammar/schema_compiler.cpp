#include "common/grammar/schema_compiler.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace k3::grammar {
namespace {

constexpr int kMaxSchemaDepth = 64;
constexpr std::size_t kMaxProperties = 512;

const std::set<std::string_view> kAnnotations = {"title",    "description", "default",
                                                 "examples", "$schema",     "$id",
                                                 "$comment", "$defs",       "definitions"};
const std::set<std::string_view> kConstraints = {"type",
                                                 "properties",
                                                 "required",
                                                 "additionalProperties",
                                                 "items",
                                                 "minItems",
                                                 "maxItems",
                                                 "enum",
                                                 "const",
                                                 "minLength",
                                                 "maxLength",
                                                 "minimum",
                                                 "maximum",
                                                 "exclusiveMinimum",
                                                 "exclusiveMaximum",
                                                 "anyOf",
                                                 "oneOf",
                                                 "$ref"};

// A keyword that says all there is to say, and which others may stand beside it.
struct Alone {
  std::string_view keyword;
  std::string_view beside;
};
constexpr Alone kAlone[] = {
    {"$ref", ""}, {"anyOf", ""}, {"oneOf", ""}, {"enum", "type"}, {"const", "type"}};

std::string below(const std::string& path, std::string_view key) {
  std::string pointer = path + "/";
  for (const char c : key) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return pointer;
}

bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

const Json& true_schema() {
  static const Json schema = true;
  return schema;
}

}  // namespace

std::string escape_attribute(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return escaped;
}

Pc SchemaCompiler::refuse(std::string_view path, std::string_view what) {
  if (error_.empty()) error_ = fmt::format("{}: schema at {}: {}", name_, path, what);
  return kFail;
}

Status SchemaCompiler::status() const {
  if (!error_.empty()) return fail(ErrorCode::kUsage, "{}", error_);
  if (program_.full()) {
    return fail(ErrorCode::kUsage, "{}: the schema is too large: more than {} instructions", name_,
                kMaxInstructions);
  }
  return {};
}

bool SchemaCompiler::check_keywords(const Json& schema, const std::string& path) {
  if (!schema.is_object()) {
    refuse(path, fmt::format("is {}, expected an object or a boolean", schema.type_name()));
    return false;
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (kAnnotations.contains(keyword)) continue;
    if (!kConstraints.contains(keyword)) {
      refuse(path, fmt::format("keyword \"{}\" is not supported", keyword));
      return false;
    }
    for (const Alone& alone : kAlone) {
      if (!schema.contains(alone.keyword) || keyword == alone.keyword || keyword == alone.beside) {
        continue;
      }
      refuse(path,
             fmt::format("keyword \"{}\" beside \"{}\" is not supported", keyword, alone.keyword));
      return false;
    }
  }
  return true;
}

Pc SchemaCompiler::rule(const Json& schema, const std::string& path) {
  const auto known = rules_.find(path);
  if (known != rules_.end()) return known->second;
  const Pc place = program_.reserve();
  rules_.emplace(path, place);
  if (++depth_ > kMaxSchemaDepth) {
    refuse(path, fmt::format("more than {} schemas within one another", kMaxSchemaDepth));
  } else {
    program_.define(place, body(schema, path));
  }
  --depth_;
  return place;
}

Pc SchemaCompiler::body(const Json& schema, const std::string& path) {
  if (schema.is_boolean()) return schema ? program_.call(forms_.any_value(), kReturn) : kFail;
  if (!check_keywords(schema, path)) return kFail;
  if (std::ranges::none_of(schema.items(),
                           [](const auto& item) { return kConstraints.contains(item.key()); })) {
    return program_.call(forms_.any_value(), kReturn);
  }
  Pc all = kFail;
  if (schema.contains("$ref")) {
    const auto target = resolve(schema, path);
    return target ? program_.call(rule(*target->schema, target->path), kReturn) : kFail;
  }
  if (schema.contains("anyOf") || schema.contains("oneOf")) {
    for (const Place& branch : branches(schema, path)) {
      all = program_.either(all, program_.call(rule(*branch.schema, branch.path), kReturn));
    }
    return all;
  }
  for (const Type type : kTypes) {
    all = program_.either(all, of_type(schema, path, type, Form::kJson, kReturn));
  }
  return all;
}

Pc SchemaCompiler::of_type(const Json& schema, const std::string& path, Type type, Form form,
                           Pc next) {
  if (++visits_ > kMaxVisits) return refuse(path, "the schemas refer to one another too often");
  if (schema.is_boolean()) return schema ? any_of_type(type, form, next) : kFail;
  if (!check_keywords(schema, path)) return kFail;
  if (depth_ > kMaxSchemaDepth) return refuse(path, "too many schemas within one another");
  if (schema.contains("$ref") || schema.contains("anyOf") || schema.contains("oneOf")) {
    Pc all = kFail;
    ++depth_;
    for (const Place& branch : branches(schema, path)) {
      all = program_.either(all, of_type(*branch.schema, branch.path, type, form, next));
    }
    --depth_;
    return all;
  }
  const auto allowed = types(schema, path);
  if (!allowed || std::ranges::count(allowed->any, type) == 0) return kFail;
  if (schema.contains("enum") || schema.contains("const")) {
    return literals(schema, path, type, form, next);
  }
  switch (type) {
    case Type::kString:
      return string(schema, path, form, next);
    case Type::kNumber:
      return number(schema, path, allowed->whole, next);
    case Type::kObject:
      return object(schema, path, Form::kJson, next);
    case Type::kArray:
      return array(schema, path, next);
    default:
      return any_of_type(type, form, next);
  }
}

Pc SchemaCompiler::any_of_type(Type type, Form form, Pc next) {
  switch (type) {
    case Type::kString:
      return form == Form::kJson ? forms_.string({}, next) : forms_.raw_string({}, next);
    case Type::kNumber:
      return forms_.number(next);
    case Type::kBoolean:
      return program_.one_of({"true", "false"}, next);
    case Type::kNull:
      return program_.literal("null", next);
    case Type::kObject:
      return forms_.any_object(next);
    case Type::kArray:
      return forms_.any_array(next);
  }
  return kFail;
}

Pc SchemaCompiler::literals(const Json& schema, const std::string& path, Type type, Form form,
                            Pc next) {
  const bool single = schema.contains("const");
  const Json values = single ? Json::array({schema["const"]}) : schema["enum"];
  if (!values.is_array()) return refuse(path, "\"enum\" is not a list");
  const auto allowed = types(schema, path);
  std::vector<std::string> texts;
  for (const Json& value : values) {
    const Type its = value.is_string()    ? Type::kString
                     : value.is_number()  ? Type::kNumber
                     : value.is_boolean() ? Type::kBoolean
                     : value.is_null()    ? Type::kNull
                     : value.is_object()  ? Type::kObject
                                          : Type::kArray;
    if (its != type || (type == Type::kNumber && allowed->whole && !is_whole(value))) continue;
    texts.push_back(value.is_string() && form == Form::kArgument ? value.get<std::string>()
                                                                 : value.dump());
  }
  return program_.one_of(std::move(texts), next);
}

Pc SchemaCompiler::string(const Json& schema, const std::string& path, Form form, Pc next) {
  const Count length = count(schema, path, "minLength", "maxLength");
  return form == Form::kJson ? forms_.string(length, next) : forms_.raw_string(length, next);
}

Pc SchemaCompiler::number(const Json& schema, const std::string& path, bool whole, Pc next) {
  const auto least = bound(schema, path, true, whole);
  const auto most = bound(schema, path, false, whole);
  if (whole) {
    return integers(program_, least ? std::optional(least->value) : std::nullopt,
                    most ? std::optional(most->value) : std::nullopt, next);
  }
  return least || most ? numbers(program_, least, most, next) : forms_.number(next);
}

Pc SchemaCompiler::array(const Json& schema, const std::string& path, Pc next) {
  const Count length = count(schema, path, "minItems", "maxItems");
  const Json& items = schema.contains("items") ? schema["items"] : true_schema();
  const Pc item = items == true_schema() ? forms_.any_value() : rule(items, below(path, "items"));
  const Pc end = program_.symbol(']', next);
  const Pc last = forms_.gap(end);
  if (length.most && (*length.most < length.least || *length.most == 0)) {
    return length.least > 0 ? kFail : program_.symbol('[', forms_.gap(end));
  }
  // `behind` follows the last item that must come, built from the last that may.
  Pc behind = last;
  if (!length.most) {
    const Pc loop = program_.reserve();
    const Pc another = program_.symbol(',', forms_.gap(program_.call(item, loop)));
    program_.define(loop, program_.either(last, another));
    behind = loop;
  }
  const std::size_t counted = length.most.value_or(std::max<std::size_t>(length.least, 1));
  for (std::size_t i = counted; i > 1 && !program_.full(); --i) {
    const Pc another = program_.symbol(',', forms_.gap(program_.call(item, behind)));
    behind = i > length.least ? program_.either(last, another) : another;
  }
  const Pc some = program_.call(item, behind);
  return program_.symbol('[', forms_.gap(length.least == 0 ? program_.either(end, some) : some));
}

std::vector<SchemaCompiler::Property> SchemaCompiler::properties(const Json& schema,
                                                                 const std::string& path) {
  std::vector<Property> list;
  std::set<std::string> required;
  const Json names = schema.value("required", Json::array());
  const Json& given = schema.contains("properties") ? schema["properties"] : Json::object();
  if (!names.is_array() || !given.is_object()) {
    refuse(path, "\"required\" must be a list and \"properties\" an object");
    return list;
  }
  for (const Json& name : names) {
    if (!name.is_string()) {
      refuse(path, "\"required\" must be a list of names");
      return list;
    }
    required.insert(name.get<std::string>());
  }
  for (const auto& [name, property] : given.items()) {
    list.push_back({name, &schema["properties"][name], below(below(path, "properties"), name),
                    required.erase(name) > 0});
  }
  // A name that is required only is one of the additional ones.
  const bool more = schema.contains("additionalProperties");
  for (const std::string& name : required) {
    list.push_back({name, more ? &schema["additionalProperties"] : &true_schema(),
                    below(path, "additionalProperties"), true});
  }
  if (list.size() > kMaxProperties) {
    refuse(path,
           fmt::format("{} properties, at most {} are supported", list.size(), kMaxProperties));
  }
  return list;
}

Pc SchemaCompiler::object(const Json& schema, const std::string& path, Form form, Pc next) {
  const std::vector<Property> named = properties(schema, path);
  if (!error_.empty()) return kFail;
  const bool json = form == Form::kJson;
  const Json& others =
      schema.contains("additionalProperties") ? schema["additionalProperties"] : true_schema();
  // An argument that no property names is of no use to a tool that names its own.
  const bool closed = others == Json(false) || (!json && !named.empty() && others == true_schema());
  const std::string others_path = below(path, "additionalProperties");
  const Pc close = json ? program_.symbol('}', next) : next;
  // What follows without and with a member before it.
  Pc first = close;
  Pc later = program_.reserve();
  Pc after_member = json ? forms_.gap(close) : close;
  if (!closed) {
    first = program_.either(first, other_member(form, true, named, others, others_path, later));
    after_member =
        program_.either(after_member, other_member(form, false, named, others, others_path, later));
  }
  program_.define(later, after_member);
  for (auto property = named.rbegin(); property != named.rend(); ++property) {
    const Pc as_first = member(form, true, *property, later);
    const Pc as_later = json ? member(form, false, *property, later) : as_first;
    first = property->required ? as_first : program_.either(as_first, first);
    later = property->required ? as_later : program_.either(as_later, later);
  }
  return json ? program_.symbol('{', forms_.gap(first)) : first;
}

Pc SchemaCompiler::member(Form form, bool first, const Property& property, Pc next) {
  if (form == Form::kArgument) {
    const Pc value = argument_value(*property.schema, property.path, next);
    return program_.symbol(
        kOpen, program_.literal("argument key=\"" + escape_attribute(property.name) + "\"", value));
  }
  const Pc value = program_.call(rule(*property.schema, property.path), next);
  const Pc key =
      program_.literal(Json(property.name).dump(), program_.symbol(':', forms_.gap(value)));
  return first ? key : program_.symbol(',', forms_.gap(key));
}

Pc SchemaCompiler::other_member(Form form, bool first, const std::vector<Property>& named,
                                const Json& schema, const std::string& path, Pc next) {
  std::vector<std::u32string> names;
  for (const Property& property : named) names.push_back(code_points(property.name));
  if (form == Form::kArgument) {
    const Pc value = program_.symbol('"', argument_value(schema, path, next));
    return program_.symbol(
        kOpen, program_.literal("argument key=\"", forms_.other_key(names, U"&", value)));
  }
  const Pc value =
      program_.call(schema == true_schema() ? forms_.any_value() : rule(schema, path), next);
  const Pc behind = program_.literal("\":", forms_.gap(value));
  const Pc key = program_.symbol('"', forms_.other_key(names, U"", behind));
  return first ? key : program_.symbol(',', forms_.gap(key));
}

// From behind the key's quote to the end of the argument element.
Pc SchemaCompiler::argument_value(const Json& schema, const std::string& path, Pc next) {
  static constexpr std::string_view kNames[] = {"string", "number", "boolean",
                                                "null",   "object", "array"};
  const Pc end = program_.symbol(kClose, program_.literal("argument", program_.symbol(kSep, next)));
  Pc all = kFail;
  for (const Type type : kTypes) {
    const Pc value = of_type(schema, path, type, Form::kArgument, end);
    if (value == kFail) continue;
    all =
        program_.either(all, program_.literal(kNames[static_cast<std::size_t>(type)],
                                              program_.symbol('"', program_.symbol(kSep, value))));
  }
  return program_.literal(" type=\"", all);
}

Pc SchemaCompiler::arguments(Pc next) {
  Place place{&document_, "#"};
  for (int i = 0; place.schema->is_object() && place.schema->contains("$ref"); ++i) {
    const auto target = i < kMaxSchemaDepth ? resolve(*place.schema, place.path) : std::nullopt;
    if (!target) return refuse(place.path, "\"$ref\" leads nowhere");
    place = *target;
  }
  if (!check_keywords(*place.schema, place.path)) return kFail;
  const Json& schema = *place.schema;
  for (const char* keyword : {"anyOf", "oneOf", "enum", "const"}) {
    if (!schema.contains(keyword)) continue;
    return refuse(place.path,
                  fmt::format("keyword \"{}\" is not supported for a tool's parameters", keyword));
  }
  const auto allowed = types(schema, place.path);
  if (!allowed) return kFail;
  if (std::ranges::count(allowed->any, Type::kObject) == 0) {
    return refuse(place.path, "a tool's parameters must be an object");
  }
  return object(schema, place.path, Form::kArgument, next);
}

}  // namespace k3::grammar
