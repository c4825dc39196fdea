import { expect, test } from 'vitest'
import type { Line } from '../src/views/draw'
import { csvOf, svgOf } from '../src/views/export'
import type { Model } from '../src/views/plot'

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
