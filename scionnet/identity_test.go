package scionnet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestIdentityFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "new", "identity.pem")
	first, err := LoadIdentity(name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	again, err := LoadIdentity(name)
	if err != nil {
		t.Fatal(err)
	}
	if again.Key() != first.Key() {
		t.Error("the second load gives another key")
	}
	files, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(files) != 1 {
		t.Errorf("%d files left, want 1 (%v)", len(files), err)
	}
}

func TestIdentityFileRefused(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good")
	if _, err := LoadIdentity(good); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		mode    os.FileMode
		part    string
	}{
		{"world-readable", content, 0o644, "others can read"},
		{"group-readable", content, 0o640, "chmod 600"},
		{"empty", nil, 0o600, "no PEM block"},
		{"cut off", content[:len(content)/2], 0o600, "no PEM block"},
		{"damaged", []byte(strings.Replace(string(content), "MC4CAQAw", "MC4CAQAx", 1)), 0o600, "damaged key"},
		{"other kind of key", pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), 0o600, "want Ed25519"},
	} {
		name := filepath.Join(t.TempDir(), "identity")
		if err := os.WriteFile(name, tt.content, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadIdentity(name)
		if err == nil || !strings.Contains(err.Error(), tt.part) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one about %q with the file's name", tt.name, err, tt.part)
		}
		left, err := os.ReadFile(name)
		if err != nil || string(left) != string(tt.content) {
			t.Errorf("%s: the file was changed (%v)", tt.name, err)
		}
	}
}

func TestIdentityFileCannotBeWritten(t *testing.T) {
	name := "/proc/identity.pem"
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		t.Skip("there is no directory in which nobody can create files")
	}
	want := "load identity /proc/identity.pem: create the file: no such file or directory"
	if _, err := LoadIdentity(name); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestIdentityCreatedAtOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "identity")
	keys := make([]PeerKey, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			id, err := LoadIdentity(name)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = id.Key()
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] {
			t.Fatal("processes that start at once get different identities")
		}
	}
}
