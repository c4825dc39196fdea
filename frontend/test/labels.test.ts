import { expect, test } from 'vitest'
import cases from '../../tests/views/axis_names.json'
import { axesOf, axisNames, sharedName } from '../src/views/labels'

test.each(cases)('axes are named as in Python: $tag', ({ tag, names }) => expect(axisNames(tag)).toEqual(names))

test('streams that share the axes have to share their names', () => {
  expect(axesOf(['a · (batch.x, batch.y)', 'b · (batch.x, batch.y)'])).toEqual(['x', 'y', 'z'])
  expect(axesOf(['(batch.epoch, batch.loss)'])).toEqual(['epoch', 'loss', 'z'])
  expect(axesOf(['(batch.epoch, batch.loss)', '(batch.step, batch.loss)'])).toEqual(['x', 'y', 'z'])
})

test('lines of one tag name their axis once', () => {
  expect(sharedName(['a · loss', 'b · loss', 'a · lr'])).toBe('loss, lr')
  expect(sharedName(['a · loss'])).toBe('a · loss')
  expect(sharedName(['loss', 'lr'])).toBe('loss, lr')
})
