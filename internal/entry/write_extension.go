package entry

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// AppendXML appends the extensions as XML that is valid anywhere. It leaves out those that are no XML, because
// any program may have written the entry.
func (x Extensions) AppendXML(b []byte) []byte {
	for name, el := range x.All {
		if el.Value != nil {
			continue // JSON, of which XML would have the name only
		}
		el.Name, el.Namespace = name.Local, &name.Space
		if own, _, ok := xmlcopy.Standalone(el.appendXML(nil, xmlcopy.Binding{}, nil)); ok {
			b = append(b, own...)
		}
	}
	return b
}

// appendXML appends an element. parent has prefix and namespace of its parent, and scope the bindings around it.
// An element of its parent's namespace is written with the parent's prefix, so that a namespace is written as
// often as the entry has it.
func (el *Element) appendXML(b []byte, parent xmlcopy.Binding, scope []xmlcopy.Binding) []byte {
	if el.Name == "" {
		return xmlcopy.AppendText(b, el.Text)
	}
	own := parent
	if el.Namespace != nil && *el.Namespace != parent.URI {
		own = xmlcopy.Binding{Prefix: el.Prefix, URI: *el.Namespace}
		if number, ok := strings.CutPrefix(own.Prefix, "ns"); ok && strings.Trim(number, "0123456789") == "" {
			own.Prefix = "x" + own.Prefix // attributes have prefixes of that form
		}
	}
	if own.URI == "" {
		own.Prefix = ""
	}
	t := xmlcopy.Tag{Prefix: own.Prefix, Local: el.Name}
	outer := len(scope)
	if uri, ok := resolve(scope, own.Prefix); uri != own.URI || !ok && own.URI != "" {
		scope = append(scope, own)
	}
	for _, name := range slices.Sorted(maps.Keys(el.Attributes)) {
		at := xmlcopy.Attribute{Local: name, Value: el.Attributes[name]}
		if uri, local, ok := strings.Cut(name, "}"); ok && strings.HasPrefix(uri, "{") {
			at.Local, at.Prefix = local, "ns"+strconv.Itoa(len(scope))
			scope = append(scope, xmlcopy.Binding{Prefix: at.Prefix, URI: uri[1:]})
		}
		t.Attrs = append(t.Attrs, at)
	}
	b = xmlcopy.AppendStart(b, &t, scope[outer:], t.Attrs)
	b = xmlcopy.AppendText(b, el.Text)
	for i := range el.Children {
		b = el.Children[i].appendXML(b, own, scope)
	}
	return xmlcopy.AppendEnd(b, t.Prefix, t.Local)
}

// resolve returns the namespace of a prefix.
func resolve(scope []xmlcopy.Binding, prefix string) (uri string, ok bool) {
	for _, b := range slices.Backward(scope) {
		if b.Prefix == prefix {
			return b.URI, true
		}
	}
	return "", false
}
