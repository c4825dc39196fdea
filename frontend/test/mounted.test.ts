import { describe, expect, it } from 'vitest'
import { latestOf } from '../src/views/Key'
import { batchOf, changed } from '../src/views/mount'
import { STANDARD } from '../src/views/series'
import { saidDark } from '../src/views/surroundings'
import { SvgContext } from '../src/views/svgContext'

const bytes = (column: Float64Array | BigInt64Array) => new DataView(column.buffer)

describe('what is pushed', () => {
  it('may be bytes, as notebooks bring them', () => {
    const batch = batchOf({ step: bytes(Float64Array.of(0, 5)), wall: bytes(Float64Array.of(7, 8)), index: bytes(BigInt64Array.of(2n, -3n)), y: bytes(Float64Array.of(1, NaN)) }, 0)
    expect(batch).toEqual({ step: Float64Array.of(0, 5), wall: Float64Array.of(7, 8), index: Float64Array.of(2, -3), y: Float64Array.of(1, NaN) })
  })
  it('may begin anywhere in a larger buffer', () => {
    const whole = new Uint8Array(8 * 3 + 3)
    whole.set(new Uint8Array(Float64Array.of(1, 2, 3).buffer), 3)
    expect(batchOf({ step: [0, 1], y: new DataView(whole.buffer, 11, 16) }, 0).y).toEqual(Float64Array.of(2, 3))
  })
  it('is counted where it has no numbers of its own', () => {
    expect(batchOf({ step: [9, 3], y: [1, 2] }, 10).index).toEqual(Float64Array.of(10, 11))
  })
  it('has columns of one length', () => {
    expect(() => batchOf({ step: [0, 1], y: [1] }, 0)).toThrow('Expected columns of one length, got step: 2, wall: 2, index: 2, y: 1')
    expect(() => batchOf({ step: [0], wall: [1, 2], values: ['a'] }, 0)).toThrow(TypeError)
  })
})

describe('options', () => {
  it('change one by one; null is what is usual', () => {
    const now = changed(STANDARD, { smooth: 0.5, xlimits: [1, 2], xname: 'epoch' })
    expect(now).toEqual({ ...STANDARD, smooth: 0.5, xlimits: [1, 2], xname: 'epoch' })
    expect(changed(now, { smooth: null, xlimits: null, over: undefined })).toEqual({ ...STANDARD, xname: 'epoch' })
  })
  it('that there are not are left out', () => {
    expect(changed(STANDARD, { theme: 'dark', title: 'x' } as never)).toEqual(STANDARD)
  })
})

describe('the surroundings', () => {
  const page = (body: { dataset?: Record<string, string>; classes?: string[] }, theme: string | null = null) =>
    ({ body: { dataset: body.dataset ?? {}, classList: body.classes ?? [] }, documentElement: { getAttribute: () => theme } }) as unknown as Document
  it.each([
    [page({ dataset: { jpThemeLight: 'false' } }), true],
    [page({ dataset: { jpThemeLight: 'true' }, classes: ['vscode-dark'] }), false],
    [page({ dataset: { vscodeThemeKind: 'vscode-dark' } }), true],
    [page({ dataset: { vscodeThemeKind: 'vscode-light' } }), false],
    [page({ classes: ['x', 'vscode-high-contrast'] }), true],
    [page({ classes: ['vscode-high-contrast-light'] }), false],
    [page({}, 'dark'), true],
    [page({}, 'light'), false],
    [page({ classes: ['notebook'] }), null],
  ])('say whether they are dark (%#)', (found, dark) => {
    expect(saidDark(found)).toBe(dark)
  })
})

it('the latest value of a line is its last number', () => {
  expect(latestOf({ y: Float64Array.of(1, 2, NaN, Infinity) })).toBe(2)
  expect(latestOf({ y: Float64Array.of(NaN) })).toBeNull()
})

describe('a painting as SVG', () => {
  const context = () => new SvgContext({ font: '', measureText: (text) => ({ width: 6 * text.length }) })
  it('escapes texts and colours', () => {
    const ctx = context()
    ctx.fillStyle = '"/><script>'
    ctx.fillText('<b>&', 1, 2)
    ctx.fillRect(0, 0, 1, 1)
    expect(ctx.text).not.toMatch(/<script|<b>/)
    expect(ctx.text).toContain('&lt;b&gt;&amp;')
  })
  it('closes what it clips, and leaves out what has no place', () => {
    const ctx = context()
    ctx.save()
    ctx.rect(0, 0, 5, 5)
    ctx.clip()
    ctx.save()
    ctx.clip()
    ctx.restore()
    ctx.beginPath()
    ctx.moveTo(NaN, 1)
    ctx.lineTo(1, 2)
    ctx.lineTo(Infinity, 2)
    ctx.lineTo(3, 4)
    ctx.stroke()
    ctx.restore()
    expect(ctx.text.match(/<g /g)!.length).toBe(ctx.text.match(/<\/g>/g)!.length)
    expect(ctx.text).toContain('d="M1 2L3 4"')
    expect(ctx.text).not.toMatch(/NaN|Infinity/)
  })
  it('has the style of before again after restore', () => {
    const ctx = context()
    ctx.save()
    ctx.globalAlpha = 0.5
    ctx.setLineDash([1, 2])
    ctx.restore()
    expect([ctx.globalAlpha, ctx.dash]).toEqual([1, []])
  })
})
