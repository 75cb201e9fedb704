package v1

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "write openapi.yaml")

// openapi.yaml is what the routes, their types and the comments of these types say, in both
// directions: nothing is missing in it, and it has nothing more.
func TestOpenAPI(t *testing.T) {
	got := describe(t)
	if *update {
		if err := os.WriteFile("openapi.yaml", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		lines, wanted := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(lines), len(wanted)) {
			if lines[i] != wanted[i] {
				t.Fatalf("openapi.yaml differs from the code in line %d: run go generate ./node/web/v1\n  file: %s\n  code: %s", i+1, wanted[i], lines[i])
			}
		}
		t.Fatal("openapi.yaml differs from the code in length: run go generate ./node/web/v1")
	}
}

type object = map[string]any

// describe writes the OpenAPI document of the routes.
func describe(t *testing.T) []byte {
	d := describer{comments: comments(t), schemas: object{}}
	paths := map[string]object{}
	for _, r := range routes {
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = d.operation(r)
	}
	for _, e := range streamed {
		d.schema(e.of)
	}
	doc := yaml.Node{Kind: yaml.MappingNode}
	for _, part := range []struct {
		key   string
		value any
	}{
		{"openapi", "3.1.0"},
		{"info", object{"title": "braid", "version": "1", "description": about}},
		{"servers", []object{{"url": Prefix}}},
		{"security", []object{{}, {"cookie": []string{}}, {"basic": []string{}}}},
		{"paths", paths},
		{"components", object{"schemas": d.schemas, "securitySchemes": object{
			"cookie": object{"type": "apiKey", "in": "cookie", "name": "braid"}, "basic": object{"type": "http", "scheme": "basic"},
		}}},
	} {
		var v yaml.Node
		if err := v.Encode(part.value); err != nil {
			t.Fatal(err)
		}
		doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: part.key}, &v)
	}
	var b bytes.Buffer
	b.WriteString("# Generated from the code by go generate ./node/web/v1. A test compares it.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type describer struct {
	comments map[string]string // of types, and of fields as Type.Field
	schemas  object
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (d describer) operation(r route) object {
	op := object{"summary": r.about}
	var params []object
	for _, m := range inPath.FindAllStringSubmatch(r.path, -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string", "pattern": "^[0-9a-f]{40}$"}})
	}
	for _, q := range r.query {
		params = append(params, object{"name": q.name, "in": q.in(), "description": q.about, "schema": object{"type": q.kind}})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.in != nil {
		content := object{"application/json": object{"schema": d.schema(r.in)}}
		if r.in == reflect.TypeFor[AddTorrent]() {
			content["multipart/form-data"] = object{"schema": object{"type": "object", "properties": object{
				"torrent": object{"type": "string", "format": "binary"}, "options": d.schema(r.in),
			}}}
		}
		op["requestBody"] = object{"required": true, "content": content}
	}
	ok := object{"description": "done"}
	switch {
	case r.media != "":
		ok["content"] = object{r.media: object{"schema": object{"type": "string"}}}
	case r.out != nil:
		ok["content"] = object{"application/json": object{"schema": d.schema(r.out)}}
	}
	status := "200"
	if r.out == nil && r.media == "" {
		status = "204"
	}
	op["responses"] = object{status: ok, "default": object{
		"description": "an error",
		"content":     object{"application/json": object{"schema": d.schema(reflect.TypeFor[Problem]())}},
	}}
	return op
}

// schema describes a type. Structs go into the components.
func (d describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		name := t.Name()
		if _, ok := d.schemas[name]; !ok {
			d.schemas[name] = object{} // for types that contain themselves
			d.schemas[name] = d.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	panic("no schema for " + t.String())
}

func (d describer) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := maps.Clone(d.schema(f.Type))
		owner := t
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		if c := d.comments[owner.Name()+"."+f.Name]; c != "" {
			p["description"] = c
		}
		properties[name] = p
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	out := object{"type": "object", "properties": properties, "description": d.comments[t.Name()]}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// comments returns what the comments in the source say of types, and of fields as Type.Field.
func comments(t *testing.T) map[string]string {
	out := map[string]string{}
	for _, dir := range []string{".", "../../event"} {
		set := token.NewFileSet()
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
				if err != nil {
					t.Fatal(err)
				}
				ast.Inspect(f, func(n ast.Node) bool {
					g, ok := n.(*ast.GenDecl)
					if !ok {
						return true
					}
					for _, s := range g.Specs {
						if s, ok := s.(*ast.TypeSpec); ok {
							out[s.Name.Name] = oneLine(g.Doc.Text())
							if x, ok := s.Type.(*ast.StructType); ok {
								fieldComments(out, s.Name.Name, x)
							}
						}
					}
					return true
				})
			}
		}
	}
	return out
}

func fieldComments(out map[string]string, owner string, x *ast.StructType) {
	for _, f := range x.Fields.List {
		for _, n := range f.Names {
			out[owner+"."+n.Name] = oneLine(f.Doc.Text() + " " + f.Comment.Text())
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var _ = json.Marshal
