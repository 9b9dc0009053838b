// Prints the protobuf encoding of Kubernetes' kinds as JSON: every message with the number, the JSON name and the type of
// each field. It reads the Go types, whose tags have what a .proto file lacks: which fields are omitted from JSON when they
// are zero, and which are inlined into the outer message. For tools/make_protobuf.py.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Maps a field number to "name:type", with marks before the type. tarragon/localcluster/apiserver/http/messages.py reads it.
type message map[string]string

var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "embedded",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intstr",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "embedded",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "embedded",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "either",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "either",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "either",
}

var messages = map[string]message{}

func main() {
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err)
		}
	}
	kinds := map[string]string{}
	for gvk, kind := range scheme.Scheme.AllKnownTypes() {
		isStable := !strings.Contains(gvk.Version, "alpha") && !strings.Contains(gvk.Version, "beta")
		isOfAllGroups := strings.HasSuffix(kind.PkgPath(), "/meta/v1") || gvk.Version == runtime.APIVersionInternal
		if isStable && !isOfAllGroups && !strings.HasSuffix(gvk.Kind, "List") {
			kinds[gvk.GroupVersion().String()+" "+gvk.Kind] = named(kind)
		}
	}
	kinds["* DeleteOptions"] = named(reflect.TypeFor[metav1.DeleteOptions]())
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"kinds": kinds, "messages": messages}); err != nil {
		panic(err)
	}
}

// Returns the name of a struct's message, and adds the message at the first call.
func named(kind reflect.Type) string {
	whole := kind.PkgPath() + "." + kind.Name()
	parts := strings.Split(kind.PkgPath(), "/")
	short := strings.Join(parts[max(0, len(parts)-2):], ".") + "." + kind.Name()
	if _, known := messages[short]; !known {
		fields := message{}
		messages[short] = fields
		for i := range kind.NumField() {
			addField(fields, kind.Field(i), special[whole] == "either")
		}
	}
	return short
}

func addField(fields message, field reflect.StructField, isCustom bool) {
	tag := strings.Split(field.Tag.Get("protobuf"), ",")
	if _, err := strconv.Atoi(at(tag, 1)); err != nil {
		return // not in protobuf, such as the embedded TypeMeta
	}
	jsonTag := strings.Split(field.Tag.Get("json"), ",")
	name, kind, marks := jsonTag[0], field.Type, ""
	if isCustom {
		name = strings.TrimPrefix(at(tag, 3), "name=")
	}
	if name == "" {
		marks += "<" // inlined into the outer message
	}
	isPointer := kind.Kind() == reflect.Pointer
	if isPointer {
		kind = kind.Elem()
	}
	if !isPointer && contains(jsonTag, "omitempty") {
		marks += "?"
	}
	// The tags of lists and maps are not reliable. A list that is a message of its own has a method Marshal.
	_, isMessage := reflect.PointerTo(kind).MethodByName("Marshal")
	if kind.Kind() == reflect.Map {
		marks += "{"
		kind = kind.Elem()
	} else if kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Uint8 && !isMessage {
		marks += "["
		kind = kind.Elem()
	}
	fields[tag[1]] = name + ":" + marks + spelled(kind)
}

func spelled(kind reflect.Type) string {
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	whole := kind.PkgPath() + "." + kind.Name()
	if name, known := special[whole]; known && name != "either" {
		return name
	}
	switch kind.Kind() {
	case reflect.Struct:
		if special[whole] == "either" {
			return "either " + named(kind)
		}
		return named(kind)
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "items " + spelled(kind.Elem()) // a list that is a message of its own
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "double"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "int"
	}
	panic("no spelling for " + kind.String())
}

func at(list []string, index int) string {
	if index < len(list) {
		return list[index]
	}
	return ""
}

func contains(list []string, wanted string) bool {
	for _, one := range list {
		if one == wanted {
			return true
		}
	}
	return false
}
