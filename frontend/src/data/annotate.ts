// Names, labels and notes of runs, the archive and the trash: what the reader changes goes to the server, and can be undone.

import { tell, tellError } from '../ui/toasts'
import { post } from './api'
import { undoOf, type Edit } from './edits'
import { byKey, takeChanged } from './runs'
import type { Run } from './types'

interface Answer {
  runs: Run[]
  problems: Record<string, string>
}

/** Edit the annotations of some runs, and say what was done. */
export async function annotate(keys: readonly string[], edit: Edit, done: string): Promise<void> {
  const undo = keys.flatMap((key) => {
    const run = byKey.peek().get(key)
    return run ? { key, ...undoOf(edit, run.annotations) } : []
  })
  const changed = await send(keys.map((key) => ({ key, ...edit })))
  if (changed) tell('done', done, () => void send(undo))
}

async function send(edits: readonly (Edit & { key: string })[]): Promise<boolean> {
  try {
    const { runs, problems } = await post<Answer>('annotations', { edits })
    takeChanged(runs)
    const [problem] = Object.values(problems)
    if (problem) tellError(new Error(problem))
    return runs.length > 0
  } catch (error) {
    tellError(error)
    return false
  }
}
