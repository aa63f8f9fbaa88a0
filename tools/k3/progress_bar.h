// A progress bar on stderr: redrawn in place on a terminal, silent elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace k3::cli {

// One thread. update() may be called as often as wanted; it draws at most ten times a second.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // ends the line it has drawn
  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace k3::cli
