#include "services/tokenizer/chat_tools.h"

#include <algorithm>
#include <utility>

#include "services/tokenizer/chat_fields.h"

namespace k3::tokenizer {
namespace {

std::string_view type_of(const ChatJson& value) {
  if (value.is_binary()) return "number";  // an integer beyond 64 bits
  return value.type_name();
}

void write_arguments(const ChatJson& arguments, XtmlWriter& out) {
  for (const auto& [key, value] : arguments.items()) {
    out.open("argument", {{"key", key}, {"type", type_of(value)}});
    out.text(value.is_string() ? value.get<std::string>() : spaced_json(value));
    out.close("argument");
  }
}

Status write_arguments_of(const ToolCall& call, std::string_view where, XtmlWriter& out) {
  if (call.arguments == nullptr) return {};
  ChatJson value = *call.arguments;
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (is_blank(text)) return {};
    auto parsed = parse_chat_json(text, where);
    if (!parsed) {
      out.open("json", {{"type", "object"}});
      out.text(text);
      out.close("json");
      return {};
    }
    value = std::move(*parsed);
  }
  if (value.is_null()) return {};
  if (!value.is_object()) {
    return fail(ErrorCode::kUsage, "{}.function.arguments: a {}, expected an object", where,
                type_of(value));
  }
  write_arguments(value, out);
  return {};
}

Result<ToolCall> read_tool_call(const ChatJson& call, const std::string& where) {
  if (!call.is_object()) {
    return fail(ErrorCode::kUsage, "{}: a {}, expected an object", where, call.type_name());
  }
  const ChatJson* function = find_field(call, "function");
  if (function == nullptr || !function->is_object()) {
    return fail(ErrorCode::kUsage, "{}.function: expected an object", where);
  }
  K3_ASSIGN(std::string id, string_field(call, "id", where));
  K3_ASSIGN(std::string name, string_field(*function, "name", where + ".function"));
  if (name.empty()) return fail(ErrorCode::kUsage, "{}.function.name: missing", where);
  return ToolCall{std::move(id), std::move(name), find_field(*function, "arguments")};
}

Result<std::string> id_of_result(const ChatJson& message, std::string_view where) {
  K3_ASSIGN(std::string id, string_field(message, "tool_call_id", where));
  if (!id.empty()) return id;
  return string_field(message, "id", where);
}

}  // namespace

Result<std::vector<ToolCall>> read_tool_calls(const ChatJson& message, std::string_view where) {
  std::vector<ToolCall> calls;
  K3_ASSIGN(const ChatJson* list, list_field(message, "tool_calls", where));
  if (list == nullptr) return calls;
  for (std::size_t i = 0; i < list->size(); ++i) {
    K3_ASSIGN(ToolCall call,
              read_tool_call((*list)[i], fmt::format("{}.tool_calls[{}]", where, i)));
    calls.push_back(std::move(call));
  }
  return calls;
}

Status write_tool_calls(const std::vector<ToolCall>& calls, std::string_view where,
                        XtmlWriter& out) {
  if (calls.empty()) return {};
  out.open("tools");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    out.open("call", {{"tool", calls[i].name}, {"index", std::to_string(i + 1)}});
    K3_TRY(write_arguments_of(calls[i], fmt::format("{}.tool_calls[{}]", where, i), out));
    out.close("call");
  }
  out.close("tools");
  return {};
}

Result<std::vector<ToolResult>> order_tool_results(const ChatJson& messages, std::size_t first,
                                                   std::size_t end,
                                                   const std::vector<ToolCall>& calls) {
  std::vector<ToolResult> as_given;
  std::vector<std::pair<std::size_t, ToolResult>> by_call;
  for (std::size_t i = first; i < end; ++i) {
    as_given.push_back({i, ""});
    K3_ASSIGN(const std::string id, id_of_result(messages[i], fmt::format("messages[{}]", i)));
    const auto call = std::ranges::find(calls, id, &ToolCall::id);
    if (id.empty() || call == calls.end()) continue;
    by_call.push_back({static_cast<std::size_t>(call - calls.begin()), ToolResult{i, call->name}});
  }
  if (by_call.size() < as_given.size()) return as_given;
  std::ranges::stable_sort(by_call, {}, [](const auto& entry) { return entry.first; });
  std::vector<ToolResult> sorted;
  for (auto& [call, result] : by_call) sorted.push_back(std::move(result));
  return sorted;
}

}  // namespace k3::tokenizer
