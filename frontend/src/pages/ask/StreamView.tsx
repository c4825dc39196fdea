// A stream in the view that the server chose, or the reader instead.

import { signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import type { Stream, Value } from '../../data/stream'
import { dark } from '../../state/theme'
import { BarChart } from '../../views/BarChart'
import { Chart, type Cursor } from '../../views/Chart'
import type { Line } from '../../views/draw'
import { number } from '../../views/format'
import { Heat } from '../../views/Heat'
import { styleOf, type LineStyle } from '../../views/palette'
import { Pictures } from '../../views/Pictures'
import { Ridge } from '../../views/Ridge'
import { barsOf, countsOf, matrixOf, picturesOf, textOf } from '../../views/values'

const N_OLD_FRAMES = 8
const cursor = signal<Cursor | null>(null)

interface StreamViewProps {
  stream: Stream
  view: string
  title: string
  style: LineStyle
}

export function StreamView({ stream, view, title, style }: StreamViewProps) {
  const values = stream.values.value
  const numbers = stream.numbers.value
  const last = values.at(-1)?.value
  if (!values.length && !numbers.y.length) return <p class="chart-empty">Nothing has come yet</p>
  switch (view) {
    case 'line':
      return <Lines stream={stream} title={title} style={style} />
    case 'xy':
    case 'annotated':
      return <Path values={values} title={title} style={style} />
    case 'bars': {
      const bars = barsOf(numbers.y.length ? Array.from(numbers.y.slice(-20)) : last)
      const history = values.slice(-N_OLD_FRAMES - 1, -1).flatMap(({ value }) => barsOf(value) ?? [])
      return bars ? <BarChart bars={bars} history={history} color={style.color} /> : <Table stream={stream} />
    }
    case 'histogram': {
      const made = numbers.y.length
        ? [{ step: numbers.step[numbers.step.length - 1]!, counts: countsOf(Array.from(numbers.y)) }]
        : values.map(({ step, value }) => ({ step, counts: countsOf(value) }))
      const frames = made.flatMap(({ step, counts }) => (counts ? [{ step, counts }] : []))
      return frames.length ? <Ridge frames={frames} /> : <Table stream={stream} />
    }
    case 'heatmap': {
      const matrix = matrixOf(last)
      return matrix ? <Heat matrix={matrix} /> : <Table stream={stream} />
    }
    case 'images':
    case 'picture': {
      const pictures = picturesOf(last)
      return pictures.length ? <Pictures pictures={pictures} /> : <Table stream={stream} />
    }
    default:
      return <Table stream={stream} />
  }
}

function Lines({ stream, title, style }: Omit<StreamViewProps, 'view'>) {
  const numbers = stream.numbers.value
  const values = stream.values.value
  const lines = useMemo(() => {
    if (numbers.y.length) return [{ id: title, label: title, style, x: numbers.step, y: numbers.y }]
    return namedLines(values)
  }, [numbers, values])
  return <PlainChart title={title} lines={lines} />
}

/** One line a name, of mappings that came one after another. */
function namedLines(values: Value[]): Line[] {
  const found = new Map<string, { x: number[]; y: number[] }>()
  for (const { step, value } of values) {
    const bars = barsOf(value)
    bars?.names.forEach((name, i) => {
      let line = found.get(name)
      if (!line) found.set(name, (line = { x: [], y: [] }))
      line.x.push(step)
      line.y.push(bars.values[i]!)
    })
  }
  return Array.from(found, ([name, { x, y }], i) => ({ id: name, label: name, style: styleOf(i, Math.floor(i / 8)), x: Float64Array.from(x), y: Float64Array.from(y) }))
}

/** Pairs as a path, in the order of their x. */
function Path({ values, title, style }: { values: Value[]; title: string; style: LineStyle }) {
  const lines = useMemo(() => {
    const pairs = values.flatMap(({ value }) => (Array.isArray(value) && typeof value[0] === 'number' && typeof value[1] === 'number' ? [[value[0], value[1]] as const] : []))
    pairs.sort((a, b) => a[0] - b[0])
    return [{ id: title, label: title, style, x: Float64Array.from(pairs, (p) => p[0]), y: Float64Array.from(pairs, (p) => p[1]) }]
  }, [values])
  return <PlainChart title={title} lines={lines} />
}

function PlainChart({ title, lines }: { title: string; lines: Line[] }) {
  const zoom = useMemo(() => signal<{ xs: [number, number] | null; ys: [number, number] | null }>({ xs: null, ys: null }), [])
  return (
    <Chart
      id={`ask ${title}`}
      title={title}
      lines={lines}
      kind="step"
      xlog={false}
      ylog={false}
      clip={false}
      zoom={zoom.value.xs}
      yzoom={zoom.value.ys}
      dark={dark.value}
      cursor={cursor}
      onZoom={(xs, ys) => (zoom.value = { xs: xs ?? zoom.peek().xs, ys: ys ?? zoom.peek().ys })}
      onReset={() => (zoom.value = { xs: null, ys: null })}
    />
  )
}

const N_ROWS = 100

function Table({ stream }: { stream: Stream }) {
  const numbers = stream.numbers.value
  const rows = stream.values.value.length
    ? stream.values.value.slice(-N_ROWS).map(({ step, value }) => [step, textOf(value)] as const)
    : Array.from(numbers.y.slice(-N_ROWS), (y, i) => [numbers.step[Math.max(0, numbers.y.length - N_ROWS) + i]!, number(y, 8)] as const)
  return (
    <div class="log" role="log" aria-label="Values" tabIndex={0}>
      {rows.reverse().map(([step, text], i) => (
        <div key={i} class="log-row">
          <span class="muted">{number(step, 10)}</span>
          <span>{text}</span>
        </div>
      ))}
    </div>
  )
}
