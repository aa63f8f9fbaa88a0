#include "common/grammar/reply_grammar.h"

#include <deque>
#include <set>
#include <string>

#include "common/grammar/schema_compiler.h"

namespace k3::grammar {
namespace {

Result<Json> parse(std::string_view text, std::string_view what) {
  if (text.size() > kMaxSpecificationBytes) {
    return fail(ErrorCode::kUsage, "{} has {} bytes, at most {} fit", what, text.size(),
                kMaxSpecificationBytes);
  }
  bool deep = false;
  const auto bounded = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kMaxSpecificationDepth;
    return !deep;
  };
  try {
    Json value = Json::parse(text, bounded);
    if (deep) {
      return fail(ErrorCode::kUsage, "{} is more than {} levels deep", what,
                  kMaxSpecificationDepth);
    }
    return value;
  } catch (const Json::exception& e) {
    return fail(ErrorCode::kUsage, "{} is not JSON: {}", what, e.what());
  }
}

Result<Grammar> finish(Grammar grammar, std::string_view what) {
  if (grammar.program.full()) {
    return fail(ErrorCode::kUsage, "{} is too large: more than {} instructions", what,
                kMaxInstructions);
  }
  if (grammar.program.heights()[grammar.start] > kMaxDepth) {
    return fail(ErrorCode::kUsage, "{}: nothing can conform to it", what);
  }
  return grammar;
}

// Builds the parts of one reply from its end to its beginning.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(const Json& specification) : spec_(specification), forms_(program_) {}

  Result<Grammar> build();

 private:
  Status check_fields() const;
  Pc tag(Symbol kind, std::string_view header, Pc next) {
    return program_.symbol(kind, program_.literal(header, program_.symbol(kSep, next)));
  }
  Pc free_text(Pc next) { return forms_.raw_string({}, next); }
  Result<Pc> document(Pc next);
  Result<Pc> calls(Pc next);

  const Json& spec_;
  Program program_;
  JsonForms forms_;
};

Status ReplyBuilder::check_fields() const {
  static const std::set<std::string_view> kFields = {"thinking", "response_format", "tools",
                                                     "tool_choice"};
  if (!spec_.is_object()) return fail(ErrorCode::kUsage, "the constraint is not an object");
  for (const auto& [field, value] : spec_.items()) {
    if (!kFields.contains(field)) {
      return fail(ErrorCode::kUsage, "the constraint has an unknown field \"{}\"", field);
    }
  }
  if (spec_.contains("thinking") && !spec_["thinking"].is_boolean()) {
    return fail(ErrorCode::kUsage, "thinking is {}, expected a boolean", spec_["thinking"].dump());
  }
  return {};
}

// The response as its format wants it; kFail for text.
Result<Pc> ReplyBuilder::document(Pc next) {
  if (!spec_.contains("response_format")) return kFail;
  const Json& format = spec_["response_format"];
  const Json type = format.is_object() ? format.value("type", Json()) : Json();
  if (type == "text") return kFail;
  if (type == "json_object") return forms_.any_object(next);
  if (type != "json_schema") {
    return fail(ErrorCode::kUsage,
                "response_format: type is {}, expected text, json_object or "
                "json_schema",
                type.dump());
  }
  if (!format.contains("schema")) {
    return fail(ErrorCode::kUsage, "response_format: json_schema without a schema");
  }
  SchemaCompiler compiler(program_, forms_, format["schema"], "response_format");
  const Pc document = compiler.json(next);
  K3_TRY(compiler.status());
  return document;
}

// One call or more, of any of the tools.
Result<Pc> ReplyBuilder::calls(Pc next) {
  const Json tools = spec_.value("tools", Json::array());
  if (!tools.is_array()) return fail(ErrorCode::kUsage, "tools is not a list");
  const Pc end = tag(kClose, "tools", next);
  const Pc call = program_.reserve();
  const Pc close = tag(kClose, "call", program_.either(end, call));
  Pc all = kFail;
  for (const Json& tool : tools) {
    const Json name = tool.is_object() ? tool.value("name", Json()) : Json();
    if (!name.is_string() || name.get<std::string>().empty()) {
      return fail(ErrorCode::kUsage, "tools: a tool without a name");
    }
    static const Json kNoParameters = Json::object();
    const Json& parameters = tool.contains("parameters") ? tool["parameters"] : kNoParameters;
    SchemaCompiler compiler(program_, forms_, parameters, "tool " + name.get<std::string>());
    const Pc arguments = compiler.arguments(close);
    K3_TRY(compiler.status());
    const Pc index = program_.range(
        '1', '9',
        program_.up_to(2, '0', '9', program_.symbol('"', program_.symbol(kSep, arguments))));
    const std::string header =
        "call tool=\"" + escape_attribute(name.get<std::string>()) + "\" index=\"";
    all = program_.either(all, program_.literal(header, index));
  }
  program_.define(call, program_.symbol(kOpen, all));
  return all == kFail ? kFail : tag(kOpen, "tools", call);
}

Result<Grammar> ReplyBuilder::build() {
  K3_TRY(check_fields());
  const Json choice = spec_.value("tool_choice", Json("auto"));
  if (choice != "auto" && choice != "none" && choice != "required") {
    return fail(ErrorCode::kUsage, "tool_choice is {}, expected none, auto or required",
                choice.dump());
  }
  const Pc end = tag(kClose, "message", program_.symbol(kEnd, kReturn));
  K3_ASSIGN(const Pc tools, calls(end));
  if (choice == "required" && tools == kFail) {
    return fail(ErrorCode::kUsage, "tool_choice is required, and there are no tools");
  }
  const Pc wanted = choice == "none" ? kFail : tools;
  const Pc without = choice == "required" ? kFail : end;
  K3_ASSIGN(const Pc formatted, document(tag(kClose, "response", without)));
  const bool text =
      !spec_.contains("response_format") || spec_["response_format"]["type"] == "text";
  const Pc response = text ? free_text(tag(kClose, "response", program_.either(without, wanted)))
                           : program_.either(formatted, tag(kClose, "response", wanted));
  Pc start = response;
  if (spec_.value("thinking", false)) {
    start = free_text(tag(kClose, "think", tag(kOpen, "response", response)));
  }
  return finish({std::move(program_), start}, "the constraint");
}

}  // namespace

Result<Grammar> compile_reply(std::string_view specification) {
  K3_ASSIGN(const Json spec, parse(specification, "the constraint"));
  return ReplyBuilder(spec).build();
}

Result<Grammar> compile_document(std::string_view schema) {
  K3_ASSIGN(const Json document, parse(schema, "the schema"));
  Grammar grammar;
  JsonForms forms(grammar.program);
  SchemaCompiler compiler(grammar.program, forms, document, "schema");
  grammar.start = compiler.json(grammar.program.symbol(kEnd, kReturn));
  K3_TRY(compiler.status());
  return finish(std::move(grammar), "the schema");
}

}  // namespace k3::grammar
