import { expect, test } from 'vitest'
import { soundsOf, textOf } from '../src/views/values'
import { timeOf, wavePath } from '../src/views/wave'

const wave = { about: '2 s, 8,000 Hz, mono, int16, peak 0.5', seconds: 2, peak: 0.5, peaks: [[[-0.5, 0.25]]] }

test('a sound is one of several, too, and one that is too long has no bytes', () => {
  const wav = new Uint8Array([1, 2])
  expect(soundsOf([{ ...wave, wav }, wave])).toEqual([{ ...wave, wav }, { ...wave, wav: null }])
  expect(soundsOf({ png: wav })).toEqual([])
  expect(soundsOf(null)).toEqual([])
  expect(textOf(wave)).toBe('2 s, 8,000 Hz, mono, int16, peak 0.5')
})

test('the outline fills the height, and places without a number are gaps', () => {
  expect(wavePath([[-0.5, 0.25], ['NaN', 'NaN'], [0, 0.5]], 0.5)).toBe('M0 -0.5H1V1H0ZM2 -1H3V0H2Z')
  expect(wavePath([[0, 0]], 0)).toBe('M0 0H1V0H0Z')
})

test('times are minutes and seconds', () => {
  expect([0, 2.04, 59.96, 61.25].map(timeOf)).toEqual(['0:00.0', '0:02.0', '1:00.0', '1:01.3'])
})
