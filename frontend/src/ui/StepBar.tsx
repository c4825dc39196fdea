// The steps of a series: a slider for keys and fingers, play, and a jump to a step by its number.

import { useEffect, useRef, useState } from 'preact/hooks'
import type { DamagedStep } from '../data/tensors'
import { nearest } from '../views/bounds'
import { dateTime, number } from '../views/format'
import { NumberInput } from './NumberInput'
import { IconButton } from './parts'

const PLAY_MS = 300
const WAIT_MS = 90

interface StepBarProps {
  label: string
  steps: readonly number[]
  walls?: readonly number[]
  /** Steps whose records are damaged, which cannot be chosen. */
  damaged?: readonly DamagedStep[]
  /** Null stands at the last step, and follows. */
  step: number | null
  /** Whether the last request is still pending: playing waits for it. */
  busy?: boolean
  onStep: (step: number | null) => void
}

/** Which of the steps one is, or the nearest one; the last for null. */
export function placeOfStep(steps: readonly number[], step: number | null): number {
  return step === null ? steps.length - 1 : nearest(steps, step)
}

/** Where a step that is not among the steps lies: half way between its neighbours, counted in steps. */
function between(steps: readonly number[], step: number): number {
  const after = steps.findIndex((one) => one > step)
  return Math.min(Math.max(0, (after < 0 ? steps.length : after) - 0.5), steps.length - 1)
}

export function StepBar({ label, steps, walls, damaged = [], step, busy = false, onStep }: StepBarProps) {
  const there = placeOfStep(steps, step)
  const [local, setLocal] = useState<number | null>(null)
  const [playing, setPlaying] = useState(false)
  const timer = useRef(0)
  const latest = useRef({ there, busy })
  latest.current = { there, busy }
  const at = Math.min(local ?? there, steps.length - 1)
  const last = steps.length - 1

  const go = (to: number) => onStep(to >= last ? null : steps[Math.max(0, to)]!)
  const slide = (to: number) => {
    setLocal(to)
    clearTimeout(timer.current)
    timer.current = window.setTimeout(() => (setLocal(null), go(to)), WAIT_MS)
  }
  useEffect(() => () => clearTimeout(timer.current), [])
  useEffect(() => {
    if (!playing) return
    const tick = setInterval(() => {
      const { there, busy } = latest.current
      if (busy) return
      if (there >= last) setPlaying(false)
      else go(there + 1)
    }, PLAY_MS)
    return () => clearInterval(tick)
  }, [playing, steps])

  const play = () => {
    if (!playing && there >= last) go(0)
    setPlaying(!playing)
  }
  if (steps.length === 0) return null
  const now = steps[at]!
  return (
    <div class="step-bar" role="group" aria-label={label}>
      <IconButton icon={playing ? 'pause' : 'play'} label={playing ? 'Stop playing' : 'Play through the steps'} disabled={steps.length < 2} onClick={play} />
      <span class="step-track">
        <input
          type="range"
          min={0}
          max={last}
          value={at}
          disabled={steps.length < 2}
          aria-label={label}
          aria-valuetext={`step ${now}, ${at + 1} of ${steps.length}`}
          title="Arrow keys, Page Up and Down, Home, End"
          onInput={({ currentTarget }) => slide(Number(currentTarget.value))}
        />
        {damaged.map(({ step, problem }) => (
          <span key={step} class="step-damaged" style={{ left: `${(100 * between(steps, step)) / Math.max(1, last)}%` }} title={`Step ${number(step, 12)} is damaged: ${problem}`} />
        ))}
      </span>
      <label class="step-number">
        <span>step</span>
        <NumberInput value={now} step="any" title="Jump to the step nearest to this number" onNumber={(step) => go(nearest(steps, step))} />
      </label>
      <span class="step-facts muted">
        {(at + 1).toLocaleString('en')} of {steps.length.toLocaleString('en')} <span class="step-ends">({steps.length > 1 ? `${number(steps[0]!, 12)} … ${number(steps[last]!, 12)}` : 'the only one'})</span>
        {damaged.length > 0 && (
          <span class="field-problem" title={damaged.map(({ step, problem }) => `Step ${number(step, 12)}: ${problem}`).join('\n')}>
            {' '}
            · {damaged.length === 1 ? `step ${number(damaged[0]!.step, 12)} is damaged` : `${damaged.length.toLocaleString('en')} steps are damaged`}
          </span>
        )}
        {walls?.[at] !== undefined && <span class="step-wall"> · {dateTime(walls[at]!)}</span>}
      </span>
    </div>
  )
}
