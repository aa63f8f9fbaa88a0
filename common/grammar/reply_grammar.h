// The grammar of a whole reply of the assistant, from what a request asks of it.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "common/grammar/program.h"

namespace k3::grammar {

struct Grammar {
  Program program;
  Pc start = kFail;
};

// The largest specification, in bytes.
inline constexpr std::size_t kMaxSpecificationBytes = 1 << 18;
// The most levels of JSON within one another in a specification.
inline constexpr int kMaxSpecificationDepth = 200;

// `specification` is JSON: an object of
//   thinking         boolean: the reply begins in the think part, which stays free text; else it
//                    begins in the response part
//   response_format  {"type": "text" | "json_object"} or {"type": "json_schema", "schema": S}
//   tools            [{"name": N, "parameters": S}]
//   tool_choice      "none", "auto" or "required"; "auto" if absent
// and of no other fields. Tool calls come behind the response; with a response format that is not
// text the response is empty in a reply that calls tools. The reply ends behind its message with a
// kEnd. kUsage naming field or keyword and place; also when no reply can conform.
Result<Grammar> compile_reply(std::string_view specification);

// One JSON document that conforms to `schema`, then kEnd. Errors as above.
Result<Grammar> compile_document(std::string_view schema);

}  // namespace k3::grammar
