import { expect, test } from 'vitest'
import { tableCsv } from '../src/pages/runs/tableCsv'

test('cells are numbers, JSON, or texts that a spreadsheet does not run', () => {
  const text = tableCsv(['name', '=x'], [['a "b"', 0.1], ['=1+1', [1, 2]], [undefined, null], [true, NaN]])
  expect(text.split('\n')).toEqual(['"name","\'=x"', '"a ""b""",0.1', '"\'=1+1","[1,2]"', ',', '"true",NaN', ''])
})
