import { expect, test } from 'vitest'
import { visible } from '../src/views/visible'

test.each([
  ['\u202eevil', '\\u202eevil'], ['\x1b[2J', '\\x1b[2J'], ['a\u2066b\u2069\u200f', 'a\\u2066b\\u2069\\u200f'], ['\x9b\x7f\0', '\\x9b\\x7f\\x00'],
  ['a\rb\r\nc\td', 'a\\rb\r\nc\td'], ['שלום José 名前 👩\u200d🔬', 'שלום José 名前 👩\u200d🔬'],
])('%j is shown as %j', (text, shown) => {
  expect(visible(text)).toBe(shown)
  expect(visible(shown)).toBe(shown)
})
