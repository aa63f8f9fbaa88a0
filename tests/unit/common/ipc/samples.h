// One message of every type, no field at its default, with its wire content as text.
#pragma once

#include <string>
#include <vector>

#include "common/ipc/messages.h"

namespace k3::ipc::test {

struct Sample {
  Message message;
  // What Cap'n Proto prints for the body's member, written by hand from proto/*.capnp.
  std::string text;
};

std::vector<Sample> samples();

// The header all sample frames carry.
Header sample_header();

}  // namespace k3::ipc::test
