#include "common/grammar/automaton.h"

#include <algorithm>
#include <set>

namespace k3::grammar {

using Op = Program::Op;

Automaton::Automaton(const Program& program, Pc start)
    : code_(program.instructions().begin(), program.instructions().end()),
      heights_(program.heights()),
      first_(start),
      frames_(1) {
  start_ = intern({{first_, 0}});
}

Automaton::Stack Automaton::push(Pc back, Stack below) {
  const auto [at, added] = stack_of_.try_emplace({back, below}, static_cast<Stack>(frames_.size()));
  if (added) frames_.push_back({back, below, frames_[below].depth + 1});
  return at->second;
}

Automaton::State Automaton::compute(State state, Symbol symbol) {
  std::vector<Reading> behind;
  for (const Reading& reading : states_[static_cast<std::size_t>(state)].readings) {
    const Program::Instruction& at = code_[reading.first];
    if (at.low <= symbol && symbol <= at.high) behind.emplace_back(at.next, reading.second);
  }
  const State next = behind.empty() ? kDead : intern(behind);
  states_[static_cast<std::size_t>(state)].next[symbol] = next;
  return next;
}

Automaton::State Automaton::intern(const std::vector<Reading>& from) {
  std::vector<Reading> todo(from.rbegin(), from.rend());
  std::set<Reading> seen;
  std::vector<Reading> readings;
  bool accepting = false;
  while (!todo.empty() && readings.size() < kMaxReadings) {
    const Reading reading = todo.back();
    todo.pop_back();
    const auto [pc, stack] = reading;
    if (frames_[stack].depth + heights_[pc] > kMaxDepth || !seen.insert(reading).second) continue;
    const Program::Instruction& at = code_[pc];
    if (at.op == Op::kRange) readings.push_back(reading);
    if (at.op == Op::kSplit) todo.emplace_back(at.other, stack);
    if (at.op == Op::kSplit || at.op == Op::kJump) todo.emplace_back(at.next, stack);
    if (at.op == Op::kCall) todo.emplace_back(at.other, push(at.next, stack));
    if (at.op == Op::kDone && stack == 0) accepting = true;
    if (at.op == Op::kDone && stack != 0) {
      todo.emplace_back(frames_[stack].back, frames_[stack].below);
    }
  }
  if (readings.empty() && !accepting) return kDead;
  std::ranges::sort(readings);
  const auto [at, added] =
      state_of_.try_emplace({accepting, readings}, static_cast<State>(states_.size()));
  if (added) {
    states_.push_back({.readings = std::move(readings), .accepting = accepting, .next = {}});
    states_.back().next.fill(kUnknown);
  }
  return at->second;
}

Automaton::Stack Automaton::copy(const std::vector<Frame>& frames, Stack stack) {
  if (stack == 0) return 0;
  return push(frames[stack].back, copy(frames, frames[stack].below));
}

Automaton::State Automaton::keep_only(State state) {
  const std::vector<Frame> frames = std::exchange(frames_, std::vector<Frame>(1));
  const StateData kept = std::move(states_[static_cast<std::size_t>(state)]);
  stack_of_.clear();
  states_.clear();
  state_of_.clear();
  start_ = intern({{first_, 0}});
  std::vector<Reading> readings;
  for (const Reading& reading : kept.readings) {
    readings.emplace_back(reading.first, copy(frames, reading.second));
  }
  if (kept.accepting) readings.emplace_back(kReturn, 0);
  return intern(readings);
}

}  // namespace k3::grammar
