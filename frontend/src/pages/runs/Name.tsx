// A run's name, with the addition that distinguishes it from others of that name.

import { apartOf } from '../../data/runs'
import type { Run } from '../../data/types'

export function Name({ run }: { run: Run }) {
  const apart = apartOf(run.key)
  return (
    <>
      <bdi>{run.name}</bdi>
      {apart && <span class="run-apart"> {apart}</span>}
    </>
  )
}
