import { expect, test } from 'vitest'
import { extended } from '../src/data/tail'
import type { Scalars } from '../src/data/types'
import { scalarsOf } from '../src/data/wire'
import { linesOf } from '../src/pages/charts/wanted'
import type { Line } from '../src/views/draw'
import { csvOf, svgOf } from '../src/views/export'
import { readings } from '../src/views/Legend'
import type { Model } from '../src/views/plot'

const bytes = (...numbers: number[]): Uint8Array => new Uint8Array(Float64Array.from(numbers).buffer)

const line = (label: string, y: number[]): Line => ({ id: label, label, style: { color: '#123456', dash: [] }, x: Float64Array.from(y, (_, i) => i), y: Float64Array.from(y) })
const model = (lines: Line[], more: Partial<Model> = {}): Model => ({
  lines, marks: [], kind: 'step', xlog: false, ylog: false, xs: [0, 4], ys: [0, 1],
  ink: { axis: '#000', grid: '#eee', text: '#333', ground: '#fff', mark: '#00f' }, ...more,
})

test('CSV has all digits, quotes names, and keeps formulas from running', () => {
  const one = { id: 'a1', step: Float64Array.of(1, 2), wall: Float64Array.of(10.25, 11), y: Float64Array.of(0.1 + 0.2, NaN) }
  expect(csvOf('train/loss', [{ ...one, label: 'a "b"' }, { ...one, label: '=cmd()', tag: 'val/loss' }])).toBe(
    'run,run_id,tag,step,wall_time,value\n' +
      '"a ""b""","a1","train/loss",1,10.25,0.30000000000000004\n"a ""b""","a1","train/loss",2,11,NaN\n' +
      `"'=cmd()","a1","val/loss",1,10.25,0.30000000000000004\n"'=cmd()","a1","val/loss",2,11,NaN\n`,
  )
})

test('SVG is escaped, and holds lines, marks and what is no number', () => {
  const svg = svgOf('<b>&', 'step', model([line('a<b', [0, 0.5, NaN, Infinity, 1])], { marks: [{ x: 2, label: 'lr', color: '#abcdef' }] }))
  expect(svg).toContain('&lt;b&gt;&amp;')
  expect(svg).toContain('a&lt;b')
  expect(svg).not.toMatch(/NaN|Infinity|<b>/)
  expect(svg.match(/stroke="#123456"/g)!.length).toBeGreaterThanOrEqual(3)
  expect(svg).toContain('fill="#123456"')
  expect(svg).toContain('fill="#abcdef"')
})

test('a gap lifts the pen', () => {
  const [path] = svgOf('t', 'step', model([line('a', [0, 1, NaN, 1, 0])])).match(/<path d="[^"]*" fill="none" stroke="#123456" stroke-width="1.5"/)!
  expect(path.match(/M/g)!.length).toBe(2)
})

test('integers beyond 2^53 have all their digits in a CSV file, however the series was fetched', () => {
  const entry = { n: 3, thinned: false, x: bytes(1, 2, 3), y: bytes(2 ** 53, 5, 2 ** 53), wall: bytes(0, 0, 0), step: bytes(1, 2, 3), mean: bytes(), parts: [[0, 3, 1, 0]], integers: [[0, '9007199254740993'], [2, '-9007199254740995']], restarts: [], tracks: [], cursor: '1:3', continued: false }
  const first = scalarsOf(entry) as Scalars
  const later = scalarsOf({ ...entry, x: bytes(4), y: bytes(2 ** 60), wall: bytes(0), step: bytes(4), parts: [[0, 1, 1, 0]], integers: [[0, '1152921504606846977']], cursor: '1:4', continued: true }) as Scalars
  const whole = extended(first, later)
  expect([...whole.integers!]).toEqual([[0, '9007199254740993'], [2, '-9007199254740995'], [3, '1152921504606846977']])
  expect(csvOf('a', [{ ...whole, label: 'run' }]).split('\n').map((row) => row.split(',').at(-1))).toEqual(['value', '9007199254740993', '5', '-9007199254740995', '1152921504606846977', ''])
  const [line] = linesOf({ id: 'r', label: 'r', style: { color: 'red', dash: [] }, runs: ['r'] }, [whole], { weight: 0, extent: 3, band: 'none' })
  expect(readings([line!], 3).map(({ digits }) => digits)).toEqual(['-9007199254740995'])
  expect(readings([line!], 2).map(({ digits }) => digits)).toEqual([null])
})
