package rig

import "testing"

func TestMain(m *testing.M) { Main(m, 10) }
