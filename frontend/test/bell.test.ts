import { expect, test, vi } from 'vitest'
import { run } from './made'

vi.mock('../src/data/runs', () => ({ runs: { value: [] } }))
vi.mock('../src/state/state', () => ({ update: () => {} }))
vi.stubGlobal('localStorage', { getItem: () => null, setItem: () => {} })

const { withAlerts } = await import('../src/pages/runs/Bell')

test('the bell lists the runs with alerts, the newest first', () => {
  const told = (key: string, n: number, wall_time: number) => run({ key, alerts: { n, title: 't', level: 'error', wall_time } })
  expect(withAlerts([told('a', 1, 5), told('b', 0, 0), told('c', 3, 9)]).map(({ key }) => key)).toEqual(['c', 'a'])
})
