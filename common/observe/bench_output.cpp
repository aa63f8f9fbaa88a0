#include "common/observe/bench_output.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "common/base/check.h"

namespace k3 {

double percentile(std::vector<double> values, double percent) {
  K3_CHECK(!values.empty(), "no values");
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const auto at = static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

Status write_report(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path);
  file << content;
  file.close();
  if (!file) return fail(ErrorCode::kOutput, "{}: cannot be written", path.string());
  return {};
}

}  // namespace k3
