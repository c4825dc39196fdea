// The rows of a logged table: numbers at the right, pictures in their cells; a column's name sorts, where one can sort.

import { useEffect, useMemo } from 'preact/hooks'
import { bytesOf } from './array'
import { number } from './format'
import { pictureIn, type Sheet } from './values'

export interface Sorting {
  column: string
  descending: boolean
}

interface SheetProps extends Sheet {
  name: string
  sorting?: Sorting | null
  onSort?: (sorting: Sorting | null) => void
}

const MEDIA = ['image', 'figure', 'audio', 'mixed']
const isNumeric = (type: string) => /^(bool|u?int|float|bfloat)/.test(type)

export function SheetTable({ name, columns, rows, sorting, onSort }: SheetProps) {
  const sortBy = (column: string) => {
    // The third click restores the order of the rows.
    if (sorting?.column !== column) onSort!({ column, descending: false })
    else onSort!(sorting.descending ? null : { column, descending: true })
  }
  return (
    <div class="values-table sheet" tabIndex={0} role="region" aria-label={`Table ${name}`}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => {
              const mine = sorting?.column === column.name ? (sorting.descending ? 'descending' : 'ascending') : undefined
              return (
                <th key={column.name} class={isNumeric(column.type) ? 'is-number' : ''} aria-sort={mine} title={`${column.name}, ${column.type}`}>
                  {onSort && !MEDIA.includes(column.type) ? (
                    <button type="button" onClick={() => sortBy(column.name)}>
                      {column.name}
                      <span aria-hidden="true">{mine ? (mine === 'ascending' ? ' ↑' : ' ↓') : ''}</span>
                    </button>
                  ) : (
                    column.name
                  )}
                </th>
              )
            })}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, k) => (
                <td key={k} class={isNumeric(columns[k]!.type) ? 'is-number' : ''}>
                  <Cell cell={cell} type={columns[k]!.type} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Cell({ cell, type }: { cell: unknown; type: string }) {
  if (cell === null) return null
  const picture = pictureIn(cell)
  if (picture) return <Thumbnail {...picture} />
  if (type.startsWith('float') || type.startsWith('bfloat')) return <>{number(Number(cell), 6)}</>
  return <>{String(cell)}</>
}

/** A picture in a cell: its bytes come as such to notebooks, and as base64 in the page's JSON. */
function Thumbnail({ data, type, caption }: { data: unknown; type: string; caption: string }) {
  const bytes = bytesOf(data)
  const url = useMemo(() => (bytes ? URL.createObjectURL(new Blob([bytes.slice()], { type })) : `data:${type};base64,${String(data)}`), [data])
  useEffect(() => () => (bytes ? URL.revokeObjectURL(url) : undefined), [url])
  return <img src={url} alt={caption || 'picture'} title={caption} />
}
