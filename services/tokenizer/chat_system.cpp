#include "services/tokenizer/chat_system.h"

#include "services/tokenizer/chat_fields.h"

namespace k3::tokenizer {
namespace {

void write_system(std::string_view type, std::string_view body, XtmlWriter& out) {
  out.open("message", {{"role", "system"}, {"type", type}});
  out.text(body);
  out.close_message();
}

std::string in_fence(const ChatJson& value) { return "```json\n" + sorted_json(value) + "\n```"; }

Result<ChatJson> schema_of(const ChatJson& format) {
  const ChatJson* holder = find_field(format, "json_schema");
  if (holder == nullptr || !holder->is_object()) {
    return fail(ErrorCode::kUsage, "response_format.json_schema: expected an object");
  }
  for (const std::string_view key : {"schema", "json_schema"}) {
    if (const ChatJson* schema = find_field(*holder, key)) return *schema;
  }
  return *holder;
}

}  // namespace

void write_tools(const ChatJson& tools, XtmlWriter& out) {
  write_system(
      "tool-declare",
      "# Tools\nHere are the available tools, described in JSONSchema.\n\n" + in_fence(tools), out);
}

void write_added_tools(const ChatJson& tools, XtmlWriter& out) {
  write_system("tool-declare",
               "## New Tools Available\n"
               "The system dynamically extends the toolset via lazy-loading.\n"
               "You have access to all existing and extended tools.\n"
               "Here are the specs for the extended tools.\n\n" +
                   in_fence(tools),
               out);
}

Status write_effort(std::string_view effort, XtmlWriter& out) {
  if (effort != "low" && effort != "high" && effort != "max") {
    return fail(ErrorCode::kUsage, "thinking_effort: \"{}\", expected low, high or max", effort);
  }
  write_system("thinking-effort",
               fmt::format("`thinking_effort` guides on how much to think in your thinking channel "
                           "(not including the response channel), supported values include `low`, "
                           "`medium`, `high`, and `max`.\n"
                           "Now the system is invoked with `thinking_effort={}`.",
                           effort),
               out);
  return {};
}

Status write_tool_choice(const ChatJson& choice, XtmlWriter& out) {
  if (choice.is_object() || choice == "auto") return {};
  if (choice != "required" && choice != "none") {
    return fail(ErrorCode::kUsage, "tool_choice: {}, expected auto, required or none",
                spaced_json(choice));
  }
  const bool required = choice == "required";
  write_system(
      "tool-choice",
      fmt::format("The system is invoked with `tool_choice={}`.\n{}", choice.get<std::string>(),
                  required ? "You MUST call tools in the next message."
                           : "You MUST NOT call any tools in the next message."),
      out);
  return {};
}

Status write_response_format(const ChatJson& format, XtmlWriter& out) {
  if (!format.is_object()) {
    return fail(ErrorCode::kUsage, "response_format: a {}, expected an object", format.type_name());
  }
  K3_ASSIGN(const std::string type, string_field(format, "type", "response_format"));
  if (type == "text") return {};
  if (type != "json_object" && type != "json_schema") {
    return fail(ErrorCode::kUsage,
                "response_format.type: \"{}\", expected text, json_object or json_schema", type);
  }
  std::string body = fmt::format(
      "The system is invoked with `response_format={}`.\n"
      "Your response must be raw JSON data without markdown code blocks (```json) or any "
      "additional formatting.",
      type);
  if (type == "json_schema") {
    K3_ASSIGN(const ChatJson schema, schema_of(format));
    body += "\nThe JSON data must match the following schema:\n" + in_fence(schema);
  }
  write_system("response-format", body, out);
  return {};
}

}  // namespace k3::tokenizer
