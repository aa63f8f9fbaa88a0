#include "tools/k3/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "tools/k3/terminal.h"

namespace k3::cli {

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) tell("\n");
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || total == 0 || (now < next_ && done < total)) return;
  next_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  constexpr std::uint64_t kWidth = 40;
  const std::uint64_t filled = kWidth * done / total;
  tell(fmt::format("\r{} [{:#<{}}{:.<{}}] {:3}%", what_, "", filled, "", kWidth - filled,
                   100 * done / total));
}

}  // namespace k3::cli
