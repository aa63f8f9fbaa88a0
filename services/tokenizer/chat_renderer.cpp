#include "services/tokenizer/chat_renderer.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "services/tokenizer/chat_content.h"
#include "services/tokenizer/chat_fields.h"
#include "services/tokenizer/chat_system.h"
#include "services/tokenizer/chat_tools.h"
#include "services/tokenizer/xtml.h"

namespace k3::tokenizer {
namespace {

class ConversationWriter {
 public:
  ConversationWriter(ContentWriter& contents, XtmlWriter& out, bool thinking)
      : contents_(contents), out_(out), thinking_(thinking) {}

  Status write(const ChatJson& messages) {
    for (std::size_t i = 0; i < messages.size();) {
      K3_ASSIGN(const std::string role, role_of(messages, i));
      if (role == "tool") {
        K3_ASSIGN(i, write_results(messages, i));
        continue;
      }
      const std::string where = fmt::format("messages[{}]", i);
      if (role == "assistant") {
        K3_TRY(write_assistant(messages[i], where));
      } else if (role == "system" || role == "user") {
        K3_TRY(write_plain(messages[i], role, where));
      }
      ++i;
    }
    return {};
  }

 private:
  static Result<std::string> role_of(const ChatJson& messages, std::size_t i) {
    if (!messages[i].is_object()) {
      return fail(ErrorCode::kUsage, "messages[{}]: a {}, expected an object", i,
                  messages[i].type_name());
    }
    K3_ASSIGN(std::string role, string_field(messages[i], "role", fmt::format("messages[{}]", i)));
    if (role.empty()) return fail(ErrorCode::kUsage, "messages[{}].role: missing", i);
    return role;
  }

  Status open_message(const ChatJson& message, std::string_view role, std::string_view where) {
    K3_ASSIGN(const std::string name, string_field(message, "name", where));
    std::vector<XtmlWriter::Attribute> attributes{{"role", role}};
    if (!name.empty()) attributes.push_back({"name", name});
    out_.open("message", attributes);
    return {};
  }

  Status write_plain(const ChatJson& message, std::string_view role, std::string_view where) {
    if (role == "system") {
      K3_ASSIGN(const ChatJson* tools, list_field(message, "tools", where));
      if (tools != nullptr) {
        write_added_tools(*tools, out_);
        return {};
      }
    }
    K3_TRY(open_message(message, role, where));
    K3_TRY(contents_.write(message, where, out_));
    out_.close_message();
    return {};
  }

  Status write_assistant(const ChatJson& message, std::string_view where) {
    K3_ASSIGN(calls_, read_tool_calls(message, where));
    results_ = 0;
    K3_TRY(open_message(message, "assistant", where));
    if (thinking_) K3_TRY(write_reasoning(message, where));
    out_.open("response");
    K3_TRY(contents_.write(message, where, out_));
    out_.close("response");
    K3_TRY(write_tool_calls(calls_, where, out_));
    out_.close_message();
    return {};
  }

  Status write_reasoning(const ChatJson& message, std::string_view where) {
    const bool alias = find_field(message, "reasoning_content") == nullptr;
    K3_ASSIGN(const std::string reasoning,
              string_field(message, alias ? "reasoning" : "reasoning_content", where));
    out_.open("think");
    if (!is_blank(reasoning)) out_.text(reasoning);
    out_.close("think");
    return {};
  }

  // Writes the run of tool messages that starts at `first`; returns the index behind it.
  Result<std::size_t> write_results(const ChatJson& messages, std::size_t first) {
    std::size_t end = first + 1;
    for (; end < messages.size(); ++end) {
      K3_ASSIGN(const std::string role, role_of(messages, end));
      if (role != "tool") break;
    }
    K3_ASSIGN(const std::vector<ToolResult> run, order_tool_results(messages, first, end, calls_));
    for (const ToolResult& result : run) {
      K3_TRY(write_result(messages[result.message], result.name,
                          fmt::format("messages[{}]", result.message)));
    }
    return end;
  }

  Status write_result(const ChatJson& message, std::string name, std::string_view where) {
    ++results_;
    for (const std::string_view key : {"tool", "name"}) {
      if (!name.empty()) break;
      K3_ASSIGN(name, string_field(message, key, where));
    }
    if (name.empty() && results_ <= calls_.size()) name = calls_[results_ - 1].name;
    if (name.empty()) {
      return fail(ErrorCode::kUsage, "{}: a tool result that belongs to no tool call", where);
    }
    const std::string index = std::to_string(results_);
    out_.open("message", {{"role", "tool"}, {"tool", name}, {"index", index}});
    K3_TRY(contents_.write(message, where, out_));
    out_.close_message();
    return {};
  }

  ContentWriter& contents_;
  XtmlWriter& out_;
  const bool thinking_;
  std::vector<ToolCall> calls_;  // of the last assistant message
  std::size_t results_ = 0;      // tool messages since then
};

Result<bool> flag_field(const ChatJson& request, std::string_view key) {
  const ChatJson* value = find_field(request, key);
  if (value == nullptr) return true;
  if (!value->is_boolean()) {
    return fail(ErrorCode::kUsage, "{}: a {}, expected true or false", key, value->type_name());
  }
  return value->get<bool>();
}

Result<ContentWriter> contents_of(const ChatJson& request) {
  std::vector<std::string> prompts;
  K3_ASSIGN(const ChatJson* list, list_field(request, "image_prompts", "request"));
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (!(*list)[i].is_string()) {
      return fail(ErrorCode::kUsage, "image_prompts[{}]: expected a string", i);
    }
    prompts.push_back((*list)[i].get<std::string>());
  }
  return ContentWriter::create(std::move(prompts));
}

Status write_settings_ahead(const ChatJson& request, bool thinking, XtmlWriter& out) {
  K3_ASSIGN(const ChatJson* tools, list_field(request, "tools", "request"));
  if (tools != nullptr) write_tools(*tools, out);
  K3_ASSIGN(const std::string effort, string_field(request, "thinking_effort", "request"));
  return thinking && !effort.empty() ? write_effort(effort, out) : Status();
}

Status write_settings_behind(const ChatJson& request, XtmlWriter& out) {
  if (const ChatJson* choice = find_field(request, "tool_choice")) {
    K3_TRY(write_tool_choice(*choice, out));
  }
  const ChatJson* format = find_field(request, "response_format");
  return format == nullptr ? Status() : write_response_format(*format, out);
}

}  // namespace

Result<std::vector<ipc::Segment>> render_chat(const ChatJson& request) {
  if (!request.is_object()) return fail(ErrorCode::kUsage, "chat request: expected an object");
  const ChatJson* messages = find_field(request, "messages");
  if (messages == nullptr || !messages->is_array()) {
    return fail(ErrorCode::kUsage, "messages: expected a list");
  }
  K3_ASSIGN(const bool thinking, flag_field(request, "thinking"));
  K3_ASSIGN(const bool prompt, flag_field(request, "add_generation_prompt"));
  K3_ASSIGN(ContentWriter contents, contents_of(request));
  XtmlWriter out;
  K3_TRY(write_settings_ahead(request, thinking, out));
  K3_TRY(ConversationWriter(contents, out, thinking).write(*messages));
  K3_TRY(contents.finish());
  K3_TRY(write_settings_behind(request, out));
  if (prompt) {
    out.open("message", {{"role", "assistant"}});
    out.open(thinking ? "think" : "response");
  }
  return out.take();
}

}  // namespace k3::tokenizer
