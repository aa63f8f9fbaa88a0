// JSON Schemas, of the subset in docs/constrained-decoding.md, as rules of a program.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/grammar/json_forms.h"
#include "common/grammar/number_forms.h"

namespace k3::grammar {

using Json = nlohmann::ordered_json;

// `text` as the value of a markup attribute.
std::string escape_attribute(std::string_view text);

// Compiles one schema document. Program, forms and document are borrowed. What is outside of the
// subset makes the part kFail and sets error(), the first of them. One thread.
class SchemaCompiler {
 public:
  // `name` begins every message: "tool f".
  SchemaCompiler(Program& program, JsonForms& forms, const Json& document, std::string name)
      : program_(program), forms_(forms), document_(document), name_(std::move(name)) {}

  // JSON text that conforms to the whole document.
  Pc json(Pc next) { return program_.call(rule(document_, "#"), next); }
  // The arguments of a tool call that conform to the whole document, which must describe an object:
  // an argument element a property.
  Pc arguments(Pc next);
  // Ok unless something was refused: kUsage naming keyword and place.
  Status status() const;

 private:
  enum class Form { kJson, kArgument };
  enum class Type { kString, kNumber, kBoolean, kNull, kObject, kArray };
  static constexpr Type kTypes[] = {Type::kString, Type::kNumber, Type::kBoolean,
                                    Type::kNull,   Type::kObject, Type::kArray};
  struct Types {
    std::vector<Type> any;
    bool whole = false;  // numbers are integers
  };
  struct Property {
    std::string name;
    const Json* schema;
    std::string path;
    bool required;
  };
  // A schema that the document names, and where it stands.
  struct Place {
    const Json* schema;
    std::string path;
  };

  Pc refuse(std::string_view path, std::string_view what);
  bool check_keywords(const Json& schema, const std::string& path);
  Pc rule(const Json& schema, const std::string& path);
  Pc body(const Json& schema, const std::string& path);
  // Values of one type; a string stands in quotes (kJson) or as it is.
  Pc of_type(const Json& schema, const std::string& path, Type type, Form form, Pc next);
  Pc any_of_type(Type type, Form form, Pc next);
  Pc literals(const Json& schema, const std::string& path, Type type, Form form, Pc next);
  Pc string(const Json& schema, const std::string& path, Form form, Pc next);
  Pc number(const Json& schema, const std::string& path, bool whole, Pc next);
  Pc array(const Json& schema, const std::string& path, Pc next);
  Pc object(const Json& schema, const std::string& path, Form form, Pc next);
  Pc member(Form form, bool first, const Property& property, Pc next);
  Pc other_member(Form form, bool first, const std::vector<Property>& named, const Json& schema,
                  const std::string& path, Pc next);
  Pc argument_value(const Json& schema, const std::string& path, Pc next);
  std::vector<Property> properties(const Json& schema, const std::string& path);

  std::optional<Types> types(const Json& schema, const std::string& path);
  std::optional<Place> resolve(const Json& schema, const std::string& path);
  std::vector<Place> branches(const Json& schema, const std::string& path);
  bool may_overlap(const Json& one, const Json& other, int depth);
  Count count(const Json& schema, const std::string& path, const char* least, const char* most);
  std::optional<Bound> bound(const Json& schema, const std::string& path, bool least, bool whole);

  Program& program_;
  JsonForms& forms_;
  const Json& document_;
  std::string name_;
  std::map<std::string, Pc> rules_;  // by path
  std::string error_;
  int depth_ = 0;   // of schemas within schemas
  int visits_ = 0;  // of schemas that are looked at once for everything that leads to them
  static constexpr int kMaxVisits = 100'000;
};

}  // namespace k3::grammar
