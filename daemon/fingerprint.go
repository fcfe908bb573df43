package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"reflect"
	"slices"
)

// filesAtStart are the keys of files that are read when a feed or a bus is started. Files with
// passwords and tokens are read for each use.
var filesAtStart = []string{"ca_file", "cert_file", "key_file", "credentials_file", "nkey_file"}

// fingerprintFiles returns a fingerprint of the contents of the files that a part of the
// configuration names. A file that cannot be read has one too, so that a reload notices when
// it appears.
func fingerprintFiles(part any) string {
	hash := sha256.New()
	forEachFile(reflect.ValueOf(part), func(path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			content = []byte(err.Error())
		}
		sum := sha256.Sum256(content)
		hash.Write(sum[:])
	})
	return hex.EncodeToString(hash.Sum(nil))
}

// forEachFile calls f for each file in v, in the order of the fields.
func forEachFile(v reflect.Value, f func(path string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			forEachFile(v.Elem(), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch path := v.Field(i); {
			case slices.Contains(filesAtStart, field.Tag.Get("yaml")) && path.String() != "":
				f(path.String())
			case field.IsExported():
				forEachFile(path, f)
			}
		}
	}
}
