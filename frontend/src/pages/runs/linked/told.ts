// A value of a run as the views say it.

import { valueOf } from '../../../data/filter'
import type { Run } from '../../../data/types'
import { dateTime, duration } from '../../../views/format'
import { cellOf } from '../tableColumns'

export function told(run: Run, name: string): string {
  const value = valueOf(run, name)
  if (value === undefined || value === null) return 'none'
  if (name === 'started' || name === 'ended') return dateTime(value as number)
  return name === 'duration' ? duration(Math.round(value as number)) : cellOf(value)
}
