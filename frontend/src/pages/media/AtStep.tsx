// What a run has under a tag at a step: the frame around it, with its problem, and a word where there is nothing yet.

import type { ComponentChildren } from 'preact'
import { labelOf } from '../../data/runs'
import type { Run } from '../../data/types'
import { RunTitle } from './RunTitle'
import { noteOfStep, stepUntil } from './tags'

export interface AtStepProps {
  run: Run
  tag: string
  /** What requests take as the tag, see `Tag`. */
  series: string
  steps: readonly number[]
  /** The step of the slider: shown is the last one until then. */
  step: number
}

interface FrameProps extends AtStepProps {
  problem: string | null
  /** What else to say beside the step. */
  more?: string
  class?: string
  children: ComponentChildren
}

export function AtStep({ run, tag, steps, step, problem, more = '', class: name = '', children }: FrameProps) {
  return (
    <article class={`media-run ${name}`} aria-label={`${tag} of ${labelOf(run.key)}`}>
      <RunTitle run={run} note={[noteOfStep(steps, step), more].filter(Boolean).join(' · ')} />
      {problem && (
        <p class="field-problem media-problem" role="alert">
          {problem}
        </p>
      )}
      {children}
      {stepUntil(steps, step) === null && <p class="muted media-none">Nothing up to this step.</p>}
    </article>
  )
}
