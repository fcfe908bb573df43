package config

import (
	"errors"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source"
)

var (
	secretType = reflect.TypeFor[credential.Secret]()
	startType  = reflect.TypeFor[source.Start]()
	keyType    = reflect.TypeFor[kafka.Key]()
)

// decodeText reads the scalar type t from text. Its error suggests the word of an enumeration that
// was probably meant. Secrets are strings, and strings cannot fail: no error quotes one.
func decodeText(t reflect.Type, text string) (reflect.Value, error) {
	v, err := setting.Decode(t, text)
	if err != nil {
		err = errors.New(err.Error() + DidYouMean(text, setting.Words(t)))
	}
	return v, err
}

// splitList returns the items of a list in the text of a variable. Commas separate
// items unless they are part of items.
func splitList(text string, commasInItems bool) ([]string, error) {
	text = strings.TrimSpace(text)
	list := []string{}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		if yaml.Unmarshal([]byte(text), &list) != nil {
			return nil, errors.New("not a YAML list of text") // yaml's error would quote it
		}
		return list, nil
	}
	isSeparator := func(r rune) bool { return r == '\n' || r == ',' && !commasInItems }
	for _, item := range strings.FieldsFunc(text, isSeparator) {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}

// ParseFormat reads the format of a feed as the configuration writes it.
func ParseFormat(text string) (Format, error) {
	_, err := decodeText(reflect.TypeFor[Format](), text)
	return Format(text), err
}
