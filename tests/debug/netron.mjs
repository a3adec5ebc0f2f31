// Opens a file by its name, as Netron's window does: node netron.mjs FOLDER-OF-NETRON FILE
import {basename, join} from "node:path";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [folder, file] = process.argv.slice(2);
const part = name => import(pathToFileURL(join(folder, `${name}.js`)));
const {ModelFactoryService} = await part("view");
const {BinaryStream} = await part("base");
const host = {require: part, exception: error => { throw error; }, event: () => {}, environment: () => null};
const stream = new BinaryStream(readFileSync(file));
const content = new Map();
const context = {
  identifier: basename(file), stream, entries: new Map(), host,
  require: part, error: error => { throw error; }, request: () => { throw new Error("no other file"); },
  get: key => content.get(key), set: (key, value) => content.set(key, value),
};
const model = await new ModelFactoryService(host).open(context);
const modules = model.modules.map(each => ({
  name: each.name, inputs: each.inputs.length,
  nodes: each.nodes.map(node => ({name: node.name, type: node.type.name, inputs: node.inputs.map(given => given.value.length)})),
}));
console.log(JSON.stringify({format: model.format, modules}));
