// Writes the types of the server's replies, from its OpenAPI document. With --check, fails if they are not up to date.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import openapiTS, { astToString } from 'openapi-typescript'

const path = new URL('../src/data/schemas.ts', import.meta.url).pathname
const python = process.env.PYTHON ?? 'python3'
const print = `
import json
from sightglass.server.api import schema
from sightglass.server.app import ROUTES
print(json.dumps(schema.openapi(ROUTES, version="")))`
const { openapi, info, components } = JSON.parse(execFileSync(python, ['-c', print], { encoding: 'utf-8', maxBuffer: 2 ** 26 }))
const { securitySchemes: _security, ...schemas } = components
const nodes = await openapiTS({ openapi, info, paths: {}, components: schemas }, { emptyObjectsUnknown: true })
const made = `// Made by 'npm run types' from the server's OpenAPI document; do not edit.\n\n${astToString(nodes)}`
if (!process.argv.includes('--check')) writeFileSync(path, made)
else if (readFileSync(path, 'utf-8') !== made) {
  console.error("frontend/src/data/schemas.ts is not what the server's OpenAPI document says: run 'make page' and commit it")
  process.exitCode = 1
}
