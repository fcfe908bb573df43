package nats

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// credentialOptions returns the options with the credentials, TLS and the inbox prefix. It
// reads every file once, so that one that cannot be read is an error at the start.
func (c Config) credentialOptions() ([]nats.Option, error) {
	var opts []nats.Option
	switch {
	case c.CredentialsFile != "":
		if err := checkCredentialsFile(c.CredentialsFile); err != nil {
			return nil, fmt.Errorf("credentials_file: %w", err)
		}
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	case c.NKeyFile != "":
		opt, err := nkeyOption(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey_file: %w", err)
		}
		opts = append(opts, opt)
	case c.Username != "":
		password, err := secretOrFile(c.Password, "password")
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserInfoHandler(func() (string, string) { return c.Username, password() }))
	case c.Token != "":
		token, err := secretOrFile(c.Token, "token")
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.TokenHandler(token))
	}
	if files := c.TLS.ClientFiles; files != (credential.ClientFiles{}) {
		settings, err := files.Config("tls")
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(settings))
	}
	if c.TLS.First {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	return opts, nil
}

func checkCredentialsFile(file string) error {
	data, err := credential.ReadFile(file)
	if err != nil {
		return err
	}
	// Without a JWT, nkeys returns the first decorated text or the whole file in its place: the seed would be sent.
	if jwt, err := nkeys.ParseDecoratedJWT(data); err != nil || jwt == string(data) || strings.Count(jwt, ".") != 2 {
		return fmt.Errorf("%s has no user JWT; name a file that 'nsc generate creds' has made, or a seed in nkey_file", file)
	}
	if _, err := nkeys.ParseDecoratedUserNKey(data); err != nil {
		return fmt.Errorf("%s has no user nkey: %w", file, err)
	}
	return nil
}

// nkeyOption is nats.NkeyOptionFromSeed, which finds no seed behind a byte order mark.
func nkeyOption(file string) (nats.Option, error) {
	data, err := credential.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s has no user nkey: %w", file, err)
	}
	public, err := key.PublicKey()
	return nats.Nkey(public, key.Sign), err
}

// secretOrFile returns a function that returns s, or the current content of its file. The
// file is read again at every connect, so that a rotated secret takes effect. If
// that fails the secret is empty, and the refusal of the server is reported.
func secretOrFile(s credential.Secret, key string) (func() string, error) {
	_, err := credential.Read(s, key)
	return func() string {
		text, _ := credential.Read(s, key)
		return text.Reveal()
	}, err
}
