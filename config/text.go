package config

import (
	"errors"
	"reflect"

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
		err = errors.New(err.Error() + didYouMean(nearestWord(text, setting.Words(t))))
	}
	return v, err
}

// ParseFormat reads the format of a feed as the configuration writes it.
func ParseFormat(text string) (Format, error) {
	_, err := decodeText(reflect.TypeFor[Format](), text)
	return Format(text), err
}
