// Runs a program over symbols: a pushdown automaton whose sets of readings are states, made as they
// are met.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/grammar/program.h"

namespace k3::grammar {

// Every state can be completed: a way that would need more than kMaxDepth open calls is never
// entered. Of more than kMaxReadings readings at a time the last are dropped; what the others allow
// conforms still. Memory: about 1.5 KB a state, of which trim() bounds the number. One thread.
class Automaton {
 public:
  using State = std::int32_t;
  static constexpr State kDead = -1;
  static constexpr std::size_t kMaxReadings = 4096;

  Automaton(const Program& program, Pc start);

  // kDead when the grammar has no text at all.
  State start() const { return start_; }
  // The state behind `symbol`, or kDead. `state` is not kDead.
  State step(State state, Symbol symbol) {
    const State known = states_[static_cast<std::size_t>(state)].next[symbol];
    return known != kUnknown ? known : compute(state, symbol);
  }
  // Whether the text may end here.
  bool accepting(State state) const { return states_[static_cast<std::size_t>(state)].accepting; }
  std::size_t states() const { return states_.size(); }
  // Forgets every state but `state` and the start; returns its new number.
  State keep_only(State state);

 private:
  static constexpr State kUnknown = -2;
  using Stack = std::uint32_t;           // 0: empty; else an index into frames_
  using Reading = std::pair<Pc, Stack>;  // a kRange instruction and the calls around it
  struct Frame {
    Pc back = 0;
    Stack below = 0;
    std::uint32_t depth = 0;
  };
  struct StateData {
    std::vector<Reading> readings;  // sorted
    bool accepting = false;
    std::array<State, kSymbols> next;
  };

  State compute(State state, Symbol symbol);
  State intern(const std::vector<Reading>& from);
  Stack push(Pc back, Stack below);
  Stack copy(const std::vector<Frame>& frames, Stack stack);

  std::vector<Program::Instruction> code_;
  std::vector<std::uint32_t> heights_;
  Pc first_;
  std::vector<Frame> frames_;  // [0] is the empty stack
  std::map<std::pair<Pc, Stack>, Stack> stack_of_;
  std::vector<StateData> states_;
  std::map<std::pair<bool, std::vector<Reading>>, State> state_of_;
  State start_ = kDead;
};

}  // namespace k3::grammar
