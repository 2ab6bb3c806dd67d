// Every export of a package has a comment, and so has every public member of its classes and interfaces:
// `node documented.mjs PACKAGE`, where it is installed.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import ts from 'typescript';

const name = process.argv[2] ?? 'polylatch';
const manifest = createRequire(join(process.cwd(), 'a.mjs')).resolve(`${name}/package.json`);
const entry = join(process.cwd(), 'documented.mts');
const options = { module: ts.ModuleKind.Node16, target: ts.ScriptTarget.ES2022, strict: true, noEmit: true };
const host = ts.createCompilerHost(options);
const { getSourceFile, fileExists, readFile } = host;
const source = `export * from '${name}';`;
host.fileExists = (file) => file === entry || fileExists(file);
host.readFile = (file) => (file === entry ? source : readFile(file));
host.getSourceFile = (file, ...more) =>
  file === entry ? ts.createSourceFile(file, source, ts.ScriptTarget.ES2022) : getSourceFile(file, ...more);
const program = ts.createProgram([entry], options, host);
const checker = program.getTypeChecker();

const missing = [];
let all = 0;
function check(symbol, path) {
  all += 1;
  const has = symbol.getDocumentationComment(checker).length > 0 || symbol.getJsDocTags(checker).length > 0;
  if (!has) missing.push(path);
}

/** Members that the package itself declares, and that a program may use. */
function membersOf(symbol) {
  const members = [...(symbol.members?.values() ?? []), ...(symbol.exports?.values() ?? [])];
  return members.filter(({ declarations = [], name: member }) =>
    declarations.some((declaration) => {
      const flags = ts.getCombinedModifierFlags(declaration);
      const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
      // What overrides has the comment of what it overrides; a constructor that of its class.
      const isOwn = (flags & hidden) === 0 && !member.startsWith('#') && !member.startsWith('__#');
      return (
        isOwn &&
        !ts.isConstructorDeclaration(declaration) &&
        !ts.isIndexSignatureDeclaration(declaration) &&
        !ts.isTypeParameterDeclaration(declaration) &&
        declaration.getSourceFile().fileName.startsWith(dirname(manifest))
      );
    }),
  );
}

for (const exported of checker.getExportsOfModule(
  checker.getSymbolAtLocation(program.getSourceFile(entry)),
)) {
  const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  check(symbol, symbol.name);
  if (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface)) {
    for (const member of membersOf(symbol)) check(member, `${symbol.name}.${member.name}`);
  }
}
if (all < 100) throw new Error(`only ${all} items of ${name} are seen`);
if (missing.length > 0) throw new Error(`${missing.length} of ${all} have no comment: ${missing.join(', ')}`);
console.log(`${all} items of ${name} are documented`);
