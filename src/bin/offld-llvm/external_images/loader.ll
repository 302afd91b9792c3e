; Made by scripts/external-images.sh from loader.c: do not edit.

%struct.fatbinary = type { i32, i16, i16, i64 }
%struct.slot = type { ptr, i8, i8 }
%struct.device_image = type { ptr, ptr, ptr, ptr }
%struct.image = type { i64, i64, i32, i32, i32, i32, i32, i32 }
%struct.object = type { i64, ptr }
%struct.machine = type { [64 x i32], i32, i32 }
%struct.Elf64_Phdr = type { i32, i32, i64, i64, i64, i64, i64, i64 }

@offld_external_hip.none = internal constant [32 x i8] c"__CLANG_OFFLOAD_BUNDLE__\00\00\00\00\00\00\00\00", align 16
@region.0 = internal unnamed_addr global ptr null, align 8
@region.1 = internal unnamed_addr global i64 0, align 8
@bundle_magic = internal unnamed_addr constant [25 x i8] c"__CLANG_OFFLOAD_BUNDLE__\00", align 16
@host_entry = internal unnamed_addr constant [31 x i8] c"host-x86_64-unknown-linux-gnu-\00", align 16
@offld_external_cuda.none = internal constant %struct.fatbinary { i32 -1168773808, i16 1, i16 16, i64 0 }, align 8
@.str = private unnamed_addr constant [36 x i8] c"offld: cannot load device code: %s\0A\00", align 1
@.str.1 = private unnamed_addr constant [51 x i8] c"offld: %s: cannot load device code from files: %s\0A\00", align 1
@.str.2 = private unnamed_addr constant [13 x i8] c"this program\00", align 1
@.str.3 = private unnamed_addr constant [49 x i8] c"the program runs with the rights of another user\00", align 1
@.str.4 = private unnamed_addr constant [24 x i8] c"its own path is unknown\00", align 1
@.str.5 = private unnamed_addr constant [10 x i8] c"%.*s%s/%s\00", align 1
@detect.overriding = internal constant [25 x i8] c"HSA_OVERRIDE_GFX_VERSION\00", align 16
@environ = external local_unnamed_addr global ptr, align 8
@.str.6 = private unnamed_addr constant [34 x i8] c"/sys/class/kfd/kfd/topology/nodes\00", align 1
@.str.7 = private unnamed_addr constant [11 x i8] c"/sys/class\00", align 1
@.str.8 = private unnamed_addr constant [9 x i8] c"/dev/dxg\00", align 1
@.str.9 = private unnamed_addr constant [48 x i8] c"/sys/class/kfd/kfd/topology/nodes/%u/properties\00", align 1
@.str.10 = private unnamed_addr constant [20 x i8] c"gfx_target_version \00", align 1
@.str.11 = private unnamed_addr constant [15 x i8] c"/proc/self/exe\00", align 1
@.str.12 = private unnamed_addr constant [52 x i8] c"the file belongs to another build: its size differs\00", align 1
@.str.13 = private unnamed_addr constant [68 x i8] c"the file is damaged or belongs to another build: its digest differs\00", align 1
@.str.14 = private unnamed_addr constant [57 x i8] c"offld: %s: cannot load the device code for %s: `%s`: %s\0A\00", align 1

define i32 @offld_external_openmp(ptr noundef %0, ptr nocapture noundef writeonly %1) local_unnamed_addr #0 {
  %3 = tail call fastcc ptr @load(ptr noundef %0, i64 noundef 0) #12
  %4 = getelementptr inbounds i8, ptr %0, i64 20
  %5 = icmp eq ptr %3, null
  br i1 %5, label %10, label %6

6:                                                ; preds = %2
  %7 = getelementptr inbounds i8, ptr %0, i64 32
  %8 = load i32, ptr %4, align 4
  %9 = icmp eq i32 %8, 0
  br i1 %9, label %10, label %12

10:                                               ; preds = %27, %6, %2
  %11 = phi i32 [ 0, %2 ], [ 0, %6 ], [ %28, %27 ]
  ret i32 %11

12:                                               ; preds = %6, %27
  %13 = phi i32 [ %28, %27 ], [ 0, %6 ]
  %14 = phi i64 [ %29, %27 ], [ 0, %6 ]
  %15 = getelementptr inbounds %struct.slot, ptr %3, i64 %14
  %16 = load ptr, ptr %15, align 8
  %17 = icmp eq ptr %16, null
  br i1 %17, label %27, label %18

18:                                               ; preds = %12
  %19 = sext i32 %13 to i64
  %20 = getelementptr inbounds %struct.device_image, ptr %1, i64 %19
  store ptr %16, ptr %20, align 8
  %21 = load ptr, ptr %15, align 8
  %22 = getelementptr inbounds %struct.image, ptr %7, i64 %14
  %23 = load i64, ptr %22, align 8
  %24 = getelementptr inbounds i8, ptr %21, i64 %23
  %25 = add nsw i32 %13, 1
  %26 = getelementptr inbounds i8, ptr %20, i64 8
  store ptr %24, ptr %26, align 8
  br label %27

27:                                               ; preds = %12, %18
  %28 = phi i32 [ %25, %18 ], [ %13, %12 ]
  %29 = add nuw nsw i64 %14, 1
  %30 = load i32, ptr %4, align 4
  %31 = zext i32 %30 to i64
  %32 = icmp ult i64 %29, %31
  br i1 %32, label %12, label %10
}

declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #1

define internal fastcc ptr @load(ptr noundef %0, i64 noundef %1) unnamed_addr #0 {
  %3 = alloca %struct.object, align 8
  %4 = alloca [4096 x i8], align 16
  %5 = alloca [66 x i8], align 16
  %6 = alloca [4096 x i8], align 16
  %7 = alloca [4096 x i8], align 16
  %8 = alloca %struct.machine, align 4
  call void @llvm.lifetime.start.p0(i64 4096, ptr nonnull %6) #13
  call void @llvm.lifetime.start.p0(i64 4096, ptr nonnull %7) #13
  call void @llvm.lifetime.start.p0(i64 264, ptr nonnull %8) #13
  %9 = getelementptr inbounds i8, ptr %8, i64 256
  store i32 0, ptr %9, align 4
  %10 = load ptr, ptr @environ, align 8
  %11 = icmp eq ptr %10, null
  br i1 %11, label %26, label %12

12:                                               ; preds = %2
  %13 = load ptr, ptr %10, align 8
  %14 = icmp eq ptr %13, null
  br i1 %14, label %26, label %19

15:                                               ; preds = %19
  %16 = getelementptr inbounds i8, ptr %21, i64 8
  %17 = load ptr, ptr %16, align 8
  %18 = icmp eq ptr %17, null
  br i1 %18, label %26, label %19

19:                                               ; preds = %12, %15
  %20 = phi ptr [ %17, %15 ], [ %13, %12 ]
  %21 = phi ptr [ %16, %15 ], [ %10, %12 ]
  %22 = tail call i32 @strncmp(ptr noundef nonnull dereferenceable(1) %20, ptr noundef nonnull dereferenceable(25) @detect.overriding, i64 noundef 24) #14
  %23 = icmp eq i32 %22, 0
  br i1 %23, label %24, label %15

24:                                               ; preds = %19
  %25 = getelementptr inbounds i8, ptr %8, i64 260
  store i32 0, ptr %25, align 4
  br label %76

26:                                               ; preds = %15, %12, %2
  %27 = tail call i32 @access(ptr noundef nonnull @.str.6, i32 noundef 1) #15
  %28 = icmp eq i32 %27, 0
  br i1 %28, label %39, label %29

29:                                               ; preds = %26
  %30 = tail call i32 @access(ptr noundef nonnull @.str.7, i32 noundef 1) #15
  %31 = icmp eq i32 %30, 0
  br i1 %31, label %32, label %36

32:                                               ; preds = %29
  %33 = tail call i32 @access(ptr noundef nonnull @.str.8, i32 noundef 0) #15
  %34 = icmp ne i32 %33, 0
  %35 = zext i1 %34 to i32
  br label %36

36:                                               ; preds = %32, %29
  %37 = phi i32 [ 0, %29 ], [ %35, %32 ]
  %38 = getelementptr inbounds i8, ptr %8, i64 260
  store i32 %37, ptr %38, align 4
  br label %76

39:                                               ; preds = %26
  %40 = getelementptr inbounds i8, ptr %8, i64 260
  store i32 1, ptr %40, align 4
  call void @llvm.lifetime.start.p0(i64 66, ptr nonnull %5) #13
  %41 = call i32 (ptr, i64, ptr, ...) @snprintf(ptr noundef nonnull dereferenceable(1) %5, i64 noundef 66, ptr noundef nonnull @.str.9, i32 noundef 0) #15
  %42 = call i32 @access(ptr noundef nonnull %5, i32 noundef 0) #15
  %43 = icmp eq i32 %42, 0
  br i1 %43, label %44, label %75

44:                                               ; preds = %39, %70
  %45 = phi i32 [ %71, %70 ], [ 0, %39 ]
  call void @llvm.lifetime.start.p0(i64 4096, ptr nonnull %4) #13
  %46 = call i32 (ptr, i32, ...) @open(ptr noundef nonnull readonly %5, i32 noundef 524288) #15
  %47 = icmp slt i32 %46, 0
  br i1 %47, label %56, label %48

48:                                               ; preds = %44
  %49 = call i64 @read(i32 noundef %46, ptr noundef nonnull %4, i64 noundef 4095) #15
  %50 = call i32 @close(i32 noundef %46) #15
  %51 = icmp slt i64 %49, 1
  br i1 %51, label %56, label %52

52:                                               ; preds = %48
  %53 = getelementptr inbounds [4096 x i8], ptr %4, i64 0, i64 %49
  store i8 0, ptr %53, align 1
  %54 = call ptr @strstr(ptr noundef nonnull dereferenceable(1) %4, ptr noundef nonnull dereferenceable(1) @.str.10) #14
  %55 = icmp eq ptr %54, null
  br i1 %55, label %56, label %57

56:                                               ; preds = %52, %48, %44
  call void @llvm.lifetime.end.p0(i64 4096, ptr nonnull %4) #13
  br label %70

57:                                               ; preds = %52
  %58 = getelementptr inbounds i8, ptr %54, i64 19
  %59 = call i64 @strtoul(ptr nocapture noundef nonnull %58, ptr noundef null, i32 noundef 10) #15
  %60 = trunc i64 %59 to i32
  call void @llvm.lifetime.end.p0(i64 4096, ptr nonnull %4) #13
  %61 = icmp eq i32 %60, 0
  br i1 %61, label %70, label %62

62:                                               ; preds = %57
  %63 = load i32, ptr %9, align 4
  %64 = icmp eq i32 %63, 64
  br i1 %64, label %65, label %66

65:                                               ; preds = %62
  store i32 0, ptr %40, align 4
  br label %70

66:                                               ; preds = %62
  %67 = add i32 %63, 1
  store i32 %67, ptr %9, align 4
  %68 = zext i32 %63 to i64
  %69 = getelementptr inbounds [64 x i32], ptr %8, i64 0, i64 %68
  store i32 %60, ptr %69, align 4
  br label %70

70:                                               ; preds = %66, %65, %57, %56
  call void @llvm.lifetime.end.p0(i64 66, ptr nonnull %5) #13
  %71 = add i32 %45, 1
  call void @llvm.lifetime.start.p0(i64 66, ptr nonnull %5) #13
  %72 = call i32 (ptr, i64, ptr, ...) @snprintf(ptr noundef nonnull dereferenceable(1) %5, i64 noundef 66, ptr noundef nonnull @.str.9, i32 noundef %71) #15
  %73 = call i32 @access(ptr noundef nonnull %5, i32 noundef 0) #15
  %74 = icmp eq i32 %73, 0
  br i1 %74, label %44, label %75

75:                                               ; preds = %70, %39
  call void @llvm.lifetime.end.p0(i64 66, ptr nonnull %5) #13
  br label %76

76:                                               ; preds = %24, %36, %75
  %77 = getelementptr inbounds i8, ptr %0, i64 20
  %78 = load i32, ptr %77, align 4
  %79 = zext i32 %78 to i64
  %80 = shl nuw nsw i64 %79, 4
  %81 = call i64 @getauxval(i64 noundef 6) #15
  %82 = freeze i64 %81
  %83 = add nsw i64 %80, -1
  %84 = add i64 %83, %82
  %85 = urem i64 %84, %82
  %86 = sub nuw i64 %84, %85
  %87 = call i64 @getauxval(i64 noundef 6) #15
  %88 = freeze i64 %87
  %89 = add i64 %1, -1
  %90 = add i64 %89, %88
  %91 = urem i64 %90, %88
  %92 = sub nuw i64 %90, %91
  %93 = add i64 %92, %86
  store i64 %93, ptr @region.1, align 8
  %94 = load i32, ptr %77, align 4
  %95 = icmp eq i32 %94, 0
  br i1 %95, label %98, label %96

96:                                               ; preds = %76
  %97 = getelementptr inbounds i8, ptr %0, i64 32
  br label %102

98:                                               ; preds = %120, %76
  %99 = phi i64 [ %93, %76 ], [ %121, %120 ]
  %100 = call ptr @mmap(ptr noundef null, i64 noundef %99, i32 noundef 0, i32 noundef 34, i32 noundef -1, i64 noundef 0) #15
  store ptr %100, ptr @region.0, align 8
  %101 = icmp eq ptr %100, inttoptr (i64 -1 to ptr)
  br i1 %101, label %129, label %126

102:                                              ; preds = %96, %120
  %103 = phi i64 [ %93, %96 ], [ %121, %120 ]
  %104 = phi i32 [ %94, %96 ], [ %122, %120 ]
  %105 = phi i64 [ 0, %96 ], [ %123, %120 ]
  %106 = getelementptr inbounds %struct.image, ptr %97, i64 %105
  %107 = call fastcc i32 @fit_of(ptr noundef nonnull %106, ptr noundef nonnull %8) #12
  %108 = icmp eq i32 %107, 0
  br i1 %108, label %120, label %109

109:                                              ; preds = %102
  %110 = load i64, ptr %106, align 8
  %111 = call i64 @getauxval(i64 noundef 6) #15
  %112 = freeze i64 %111
  %113 = add i64 %110, -1
  %114 = add i64 %113, %112
  %115 = urem i64 %114, %112
  %116 = sub i64 %114, %115
  %117 = load i64, ptr @region.1, align 8
  %118 = add i64 %116, %117
  store i64 %118, ptr @region.1, align 8
  %119 = load i32, ptr %77, align 4
  br label %120

120:                                              ; preds = %102, %109
  %121 = phi i64 [ %103, %102 ], [ %118, %109 ]
  %122 = phi i32 [ %104, %102 ], [ %119, %109 ]
  %123 = add nuw nsw i64 %105, 1
  %124 = zext i32 %122 to i64
  %125 = icmp ult i64 %123, %124
  br i1 %125, label %102, label %98

126:                                              ; preds = %98
  %127 = call i32 @mprotect(ptr noundef %100, i64 noundef %93, i32 noundef 3) #15
  %128 = icmp eq i32 %127, 0
  br i1 %128, label %134, label %129

129:                                              ; preds = %126, %98
  %130 = tail call ptr @__errno_location() #16
  %131 = load i32, ptr %130, align 4
  %132 = call ptr @strerror(i32 noundef %131) #15
  %133 = call i32 (i32, ptr, ...) @dprintf(i32 noundef 2, ptr noundef nonnull @.str, ptr noundef %132) #15
  store ptr null, ptr @region.0, align 8
  br label %509

134:                                              ; preds = %126
  %135 = load ptr, ptr @region.0, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %3) #13
  %136 = ptrtoint ptr %0 to i64
  store i64 %136, ptr %3, align 8
  %137 = getelementptr inbounds i8, ptr %3, i64 8
  store ptr null, ptr %137, align 8
  %138 = call i32 @dl_iterate_phdr(ptr noundef nonnull @find_object, ptr noundef nonnull %3) #15
  %139 = load ptr, ptr %137, align 8
  %140 = icmp eq ptr %139, null
  %141 = select i1 %140, ptr @.str.11, ptr %139
  %142 = call ptr @realpath(ptr noundef nonnull %141, ptr noundef nonnull %6) #15
  %143 = icmp eq ptr %142, null
  br i1 %143, label %144, label %155

144:                                              ; preds = %134
  %145 = call i64 @getauxval(i64 noundef 31) #15
  %146 = load ptr, ptr %137, align 8
  %147 = icmp eq ptr %146, null
  %148 = icmp ne i64 %145, 0
  %149 = select i1 %147, i1 %148, i1 false
  br i1 %149, label %150, label %154

150:                                              ; preds = %144
  %151 = inttoptr i64 %145 to ptr
  %152 = call ptr @realpath(ptr noundef nonnull %151, ptr noundef nonnull %6) #15
  %153 = icmp eq ptr %152, null
  br i1 %153, label %154, label %155

154:                                              ; preds = %144, %150
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3) #13
  br label %165

155:                                              ; preds = %134, %150
  %156 = call ptr @strrchr(ptr noundef nonnull dereferenceable(1) %6, i32 noundef 47) #14
  %157 = getelementptr inbounds i8, ptr %156, i64 1
  %158 = ptrtoint ptr %157 to i64
  %159 = ptrtoint ptr %6 to i64
  %160 = sub i64 %158, %159
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3) #13
  %161 = icmp eq ptr %157, %6
  br i1 %161, label %165, label %162

162:                                              ; preds = %155
  %163 = call i64 @getauxval(i64 noundef 23) #15
  %164 = icmp eq i64 %163, 0
  br i1 %164, label %169, label %165

165:                                              ; preds = %154, %162, %155
  %166 = phi ptr [ @.str.3, %162 ], [ @.str.4, %155 ], [ @.str.4, %154 ]
  %167 = phi ptr [ %6, %162 ], [ @.str.2, %155 ], [ @.str.2, %154 ]
  %168 = call i32 (i32, ptr, ...) @dprintf(i32 noundef 2, ptr noundef nonnull @.str.1, ptr noundef nonnull %167, ptr noundef nonnull %166) #15
  br label %509

169:                                              ; preds = %162
  %170 = getelementptr inbounds i8, ptr %0, i64 24
  %171 = load i32, ptr %170, align 4
  %172 = zext i32 %171 to i64
  %173 = getelementptr inbounds i8, ptr %0, i64 %172
  %174 = load i8, ptr %173, align 1
  %175 = icmp eq i8 %174, 47
  %176 = select i1 %175, i64 0, i64 %160
  %177 = load i32, ptr %77, align 4
  %178 = icmp eq i32 %177, 0
  br i1 %178, label %509, label %179

179:                                              ; preds = %169
  %180 = load ptr, ptr @region.0, align 8
  %181 = getelementptr inbounds i8, ptr %180, i64 %93
  %182 = getelementptr inbounds i8, ptr %0, i64 32
  %183 = trunc i64 %176 to i32
  br label %193

184:                                              ; preds = %408
  %185 = icmp eq i32 %411, 0
  br i1 %185, label %509, label %186

186:                                              ; preds = %184
  %187 = getelementptr inbounds i8, ptr %0, i64 32
  %188 = getelementptr inbounds i8, ptr %8, i64 260
  %189 = load i32, ptr %188, align 4
  %190 = icmp ne i32 %189, 0
  %191 = load i32, ptr %9, align 4
  %192 = trunc i64 %176 to i32
  br label %414

193:                                              ; preds = %179, %408
  %194 = phi i64 [ 0, %179 ], [ %410, %408 ]
  %195 = phi ptr [ %181, %179 ], [ %409, %408 ]
  %196 = getelementptr inbounds %struct.image, ptr %182, i64 %194
  %197 = call fastcc i32 @fit_of(ptr noundef nonnull %196, ptr noundef nonnull %8) #12
  %198 = trunc nuw nsw i32 %197 to i8
  %199 = getelementptr inbounds %struct.slot, ptr %135, i64 %194
  %200 = getelementptr inbounds i8, ptr %199, i64 8
  store i8 %198, ptr %200, align 8
  %201 = icmp eq i32 %197, 0
  br i1 %201, label %408, label %202

202:                                              ; preds = %193
  %203 = getelementptr inbounds i8, ptr %196, i64 16
  %204 = load i32, ptr %203, align 8
  %205 = zext i32 %204 to i64
  %206 = getelementptr inbounds i8, ptr %0, i64 %205
  %207 = call i32 (ptr, i64, ptr, ...) @snprintf(ptr noundef nonnull dereferenceable(1) %7, i64 noundef 4096, ptr noundef nonnull @.str.5, i32 noundef %183, ptr noundef nonnull %6, ptr noundef nonnull %173, ptr noundef %206) #15
  %208 = icmp ugt i32 %207, 4095
  br i1 %208, label %209, label %211

209:                                              ; preds = %202
  %210 = call ptr @strerror(i32 noundef 36) #15
  br label %384

211:                                              ; preds = %202
  %212 = call i32 (ptr, i32, ...) @open(ptr noundef nonnull readonly %7, i32 noundef 526336) #15
  %213 = icmp slt i32 %212, 0
  br i1 %213, label %214, label %222

214:                                              ; preds = %211
  %215 = tail call ptr @__errno_location() #16
  %216 = load i32, ptr %215, align 4
  %217 = icmp eq i32 %216, 2
  %218 = icmp eq i32 %216, 20
  %219 = or i1 %217, %218
  %220 = zext i1 %219 to i32
  %221 = call ptr @strerror(i32 noundef %216) #15
  br label %384

222:                                              ; preds = %211
  %223 = call i64 @lseek(i32 noundef %212, i64 noundef 0, i32 noundef 2) #15
  %224 = icmp slt i64 %223, 0
  br i1 %224, label %225, label %229

225:                                              ; preds = %222
  %226 = tail call ptr @__errno_location() #16
  %227 = load i32, ptr %226, align 4
  %228 = call ptr @strerror(i32 noundef %227) #15
  br label %381

229:                                              ; preds = %222
  %230 = load i64, ptr %196, align 8
  %231 = icmp eq i64 %223, %230
  br i1 %231, label %232, label %381

232:                                              ; preds = %229
  %233 = call ptr @mmap(ptr noundef %195, i64 noundef %223, i32 noundef 1, i32 noundef 18, i32 noundef %212, i64 noundef 0) #15
  %234 = icmp eq ptr %233, inttoptr (i64 -1 to ptr)
  br i1 %234, label %235, label %239

235:                                              ; preds = %232
  %236 = tail call ptr @__errno_location() #16
  %237 = load i32, ptr %236, align 4
  %238 = call ptr @strerror(i32 noundef %237) #15
  br label %381

239:                                              ; preds = %232
  %240 = load i64, ptr %196, align 8
  %241 = getelementptr inbounds i8, ptr %195, i64 %240
  %242 = icmp ugt i64 %240, 31
  %243 = ptrtoint ptr %241 to i64
  br i1 %242, label %244, label %316

244:                                              ; preds = %239
  %245 = icmp sgt i64 %240, 31
  br i1 %245, label %246, label %279

246:                                              ; preds = %244, %246
  %247 = phi ptr [ %275, %246 ], [ %195, %244 ]
  %248 = phi i64 [ %274, %246 ], [ 7046029288634856825, %244 ]
  %249 = phi i64 [ %268, %246 ], [ 0, %244 ]
  %250 = phi i64 [ %262, %246 ], [ -4417276706812531889, %244 ]
  %251 = phi i64 [ %256, %246 ], [ 6983438078262162902, %244 ]
  %252 = load i64, ptr %247, align 1
  %253 = mul i64 %252, -4417276706812531889
  %254 = add i64 %253, %251
  %255 = call i64 @llvm.fshl.i64(i64 %254, i64 %254, i64 31)
  %256 = mul i64 %255, -7046029288634856825
  %257 = getelementptr inbounds i8, ptr %247, i64 8
  %258 = load i64, ptr %257, align 1
  %259 = mul i64 %258, -4417276706812531889
  %260 = add i64 %259, %250
  %261 = call i64 @llvm.fshl.i64(i64 %260, i64 %260, i64 31)
  %262 = mul i64 %261, -7046029288634856825
  %263 = getelementptr inbounds i8, ptr %247, i64 16
  %264 = load i64, ptr %263, align 1
  %265 = mul i64 %264, -4417276706812531889
  %266 = add i64 %265, %249
  %267 = call i64 @llvm.fshl.i64(i64 %266, i64 %266, i64 31)
  %268 = mul i64 %267, -7046029288634856825
  %269 = getelementptr inbounds i8, ptr %247, i64 24
  %270 = load i64, ptr %269, align 1
  %271 = mul i64 %270, -4417276706812531889
  %272 = add i64 %271, %248
  %273 = call i64 @llvm.fshl.i64(i64 %272, i64 %272, i64 31)
  %274 = mul i64 %273, -7046029288634856825
  %275 = getelementptr inbounds i8, ptr %247, i64 32
  %276 = ptrtoint ptr %275 to i64
  %277 = sub i64 %243, %276
  %278 = icmp sgt i64 %277, 31
  br i1 %278, label %246, label %279

279:                                              ; preds = %246, %244
  %280 = phi i64 [ 6983438078262162902, %244 ], [ %256, %246 ]
  %281 = phi i64 [ -4417276706812531889, %244 ], [ %262, %246 ]
  %282 = phi i64 [ 0, %244 ], [ %268, %246 ]
  %283 = phi i64 [ 7046029288634856825, %244 ], [ %274, %246 ]
  %284 = phi ptr [ %195, %244 ], [ %275, %246 ]
  %285 = call i64 @llvm.fshl.i64(i64 %280, i64 %280, i64 1)
  %286 = call i64 @llvm.fshl.i64(i64 %281, i64 %281, i64 7)
  %287 = add i64 %286, %285
  %288 = call i64 @llvm.fshl.i64(i64 %282, i64 %282, i64 12)
  %289 = add i64 %287, %288
  %290 = call i64 @llvm.fshl.i64(i64 %283, i64 %283, i64 18)
  %291 = add i64 %289, %290
  %292 = mul i64 %280, -4417276706812531889
  %293 = call i64 @llvm.fshl.i64(i64 %292, i64 %292, i64 31)
  %294 = mul i64 %293, -7046029288634856825
  %295 = xor i64 %291, %294
  %296 = mul i64 %295, -7046029288634856825
  %297 = add i64 %296, -8796714831421723037
  %298 = mul i64 %281, -4417276706812531889
  %299 = call i64 @llvm.fshl.i64(i64 %298, i64 %298, i64 31)
  %300 = mul i64 %299, -7046029288634856825
  %301 = xor i64 %297, %300
  %302 = mul i64 %301, -7046029288634856825
  %303 = add i64 %302, -8796714831421723037
  %304 = mul i64 %282, -4417276706812531889
  %305 = call i64 @llvm.fshl.i64(i64 %304, i64 %304, i64 31)
  %306 = mul i64 %305, -7046029288634856825
  %307 = xor i64 %303, %306
  %308 = mul i64 %307, -7046029288634856825
  %309 = add i64 %308, -8796714831421723037
  %310 = mul i64 %283, -4417276706812531889
  %311 = call i64 @llvm.fshl.i64(i64 %310, i64 %310, i64 31)
  %312 = mul i64 %311, -7046029288634856825
  %313 = xor i64 %309, %312
  %314 = mul i64 %313, -7046029288634856825
  %315 = add i64 %314, -8796714831421723037
  br label %316

316:                                              ; preds = %279, %239
  %317 = phi i64 [ %315, %279 ], [ 2870177450012600261, %239 ]
  %318 = phi ptr [ %284, %279 ], [ %195, %239 ]
  %319 = add i64 %317, %240
  %320 = ptrtoint ptr %318 to i64
  %321 = sub i64 %243, %320
  %322 = icmp sgt i64 %321, 7
  br i1 %322, label %323, label %338

323:                                              ; preds = %316, %323
  %324 = phi ptr [ %334, %323 ], [ %318, %316 ]
  %325 = phi i64 [ %333, %323 ], [ %319, %316 ]
  %326 = load i64, ptr %324, align 1
  %327 = mul i64 %326, -4417276706812531889
  %328 = call i64 @llvm.fshl.i64(i64 %327, i64 %327, i64 31)
  %329 = mul i64 %328, -7046029288634856825
  %330 = xor i64 %329, %325
  %331 = call i64 @llvm.fshl.i64(i64 %330, i64 %330, i64 27)
  %332 = mul i64 %331, -7046029288634856825
  %333 = add i64 %332, -8796714831421723037
  %334 = getelementptr inbounds i8, ptr %324, i64 8
  %335 = ptrtoint ptr %334 to i64
  %336 = sub i64 %243, %335
  %337 = icmp sgt i64 %336, 7
  br i1 %337, label %323, label %338

338:                                              ; preds = %323, %316
  %339 = phi i64 [ %319, %316 ], [ %333, %323 ]
  %340 = phi ptr [ %318, %316 ], [ %334, %323 ]
  %341 = phi i64 [ %321, %316 ], [ %336, %323 ]
  %342 = icmp sgt i64 %341, 3
  br i1 %342, label %343, label %352

343:                                              ; preds = %338
  %344 = load i32, ptr %340, align 1
  %345 = zext i32 %344 to i64
  %346 = mul i64 %345, -7046029288634856825
  %347 = xor i64 %346, %339
  %348 = call i64 @llvm.fshl.i64(i64 %347, i64 %347, i64 23)
  %349 = mul i64 %348, -4417276706812531889
  %350 = add i64 %349, 1609587929392839161
  %351 = getelementptr inbounds i8, ptr %340, i64 4
  br label %352

352:                                              ; preds = %343, %338
  %353 = phi i64 [ %350, %343 ], [ %339, %338 ]
  %354 = phi ptr [ %351, %343 ], [ %340, %338 ]
  %355 = icmp ult ptr %354, %241
  br i1 %355, label %356, label %367

356:                                              ; preds = %352, %356
  %357 = phi ptr [ %365, %356 ], [ %354, %352 ]
  %358 = phi i64 [ %364, %356 ], [ %353, %352 ]
  %359 = load i8, ptr %357, align 1
  %360 = zext i8 %359 to i64
  %361 = mul i64 %360, 2870177450012600261
  %362 = xor i64 %361, %358
  %363 = call i64 @llvm.fshl.i64(i64 %362, i64 %362, i64 11)
  %364 = mul i64 %363, -7046029288634856825
  %365 = getelementptr inbounds i8, ptr %357, i64 1
  %366 = icmp ult ptr %365, %241
  br i1 %366, label %356, label %367

367:                                              ; preds = %356, %352
  %368 = phi i64 [ %353, %352 ], [ %364, %356 ]
  %369 = lshr i64 %368, 33
  %370 = xor i64 %369, %368
  %371 = mul i64 %370, -4417276706812531889
  %372 = lshr i64 %371, 29
  %373 = xor i64 %372, %371
  %374 = mul i64 %373, 1609587929392839161
  %375 = lshr i64 %374, 32
  %376 = xor i64 %375, %374
  %377 = getelementptr inbounds i8, ptr %196, i64 8
  %378 = load i64, ptr %377, align 8
  %379 = icmp eq i64 %376, %378
  %380 = select i1 %379, ptr null, ptr @.str.13
  br label %381

381:                                              ; preds = %367, %235, %229, %225
  %382 = phi ptr [ %228, %225 ], [ %238, %235 ], [ @.str.12, %229 ], [ %380, %367 ]
  %383 = call i32 @close(i32 noundef %212) #15
  br label %384

384:                                              ; preds = %381, %214, %209
  %385 = phi i32 [ 0, %209 ], [ %220, %214 ], [ 0, %381 ]
  %386 = phi ptr [ %210, %209 ], [ %221, %214 ], [ %382, %381 ]
  %387 = trunc nuw nsw i32 %385 to i8
  %388 = getelementptr inbounds i8, ptr %199, i64 9
  store i8 %387, ptr %388, align 1
  %389 = icmp eq ptr %386, null
  br i1 %389, label %390, label %391

390:                                              ; preds = %384
  store ptr %195, ptr %199, align 8
  br label %399

391:                                              ; preds = %384
  %392 = icmp eq i32 %385, 0
  br i1 %392, label %393, label %399

393:                                              ; preds = %391
  %394 = getelementptr inbounds i8, ptr %196, i64 24
  %395 = load i32, ptr %394, align 8
  %396 = zext i32 %395 to i64
  %397 = getelementptr inbounds i8, ptr %0, i64 %396
  %398 = call i32 (i32, ptr, ...) @dprintf(i32 noundef 2, ptr noundef nonnull @.str.14, ptr noundef nonnull %6, ptr noundef %397, ptr noundef nonnull %7, ptr noundef nonnull %386) #15
  br label %399

399:                                              ; preds = %391, %393, %390
  %400 = load i64, ptr %196, align 8
  %401 = call i64 @getauxval(i64 noundef 6) #15
  %402 = freeze i64 %401
  %403 = add i64 %400, -1
  %404 = add i64 %403, %402
  %405 = urem i64 %404, %402
  %406 = sub nuw i64 %404, %405
  %407 = getelementptr inbounds i8, ptr %195, i64 %406
  br label %408

408:                                              ; preds = %193, %399
  %409 = phi ptr [ %407, %399 ], [ %195, %193 ]
  %410 = add nuw nsw i64 %194, 1
  %411 = load i32, ptr %77, align 4
  %412 = zext i32 %411 to i64
  %413 = icmp ult i64 %410, %412
  br i1 %413, label %193, label %184

414:                                              ; preds = %186, %503
  %415 = phi i32 [ %411, %186 ], [ %504, %503 ]
  %416 = phi i64 [ 0, %186 ], [ %506, %503 ]
  %417 = phi i32 [ 0, %186 ], [ %505, %503 ]
  %418 = getelementptr inbounds %struct.image, ptr %187, i64 %416
  %419 = getelementptr inbounds %struct.slot, ptr %135, i64 %416
  %420 = getelementptr inbounds i8, ptr %419, i64 9
  %421 = load i8, ptr %420, align 1
  %422 = icmp eq i8 %421, 0
  br i1 %422, label %503, label %423

423:                                              ; preds = %414
  %424 = getelementptr inbounds i8, ptr %419, i64 8
  %425 = load i8, ptr %424, align 8
  %426 = icmp eq i8 %425, 1
  %427 = icmp ne i32 %417, 0
  %428 = select i1 %426, i1 %427, i1 false
  br i1 %428, label %503, label %429

429:                                              ; preds = %423
  %430 = getelementptr inbounds i8, ptr %418, i64 28
  %431 = load i32, ptr %430, align 4
  %432 = and i32 %431, -2
  %433 = icmp eq i32 %432, 2
  %434 = select i1 %433, i1 %190, i1 false
  %435 = getelementptr inbounds i8, ptr %418, i64 32
  %436 = icmp eq i32 %431, 2
  %437 = zext i32 %415 to i64
  br label %438

438:                                              ; preds = %484, %429
  %439 = phi i32 [ 0, %429 ], [ %485, %484 ]
  br i1 %434, label %440, label %442

440:                                              ; preds = %438
  %441 = icmp ult i32 %439, %191
  br i1 %441, label %444, label %503

442:                                              ; preds = %438
  %443 = icmp eq i32 %439, 0
  br i1 %443, label %452, label %503

444:                                              ; preds = %440
  %445 = zext i32 %439 to i64
  %446 = getelementptr inbounds [64 x i32], ptr %8, i64 0, i64 %445
  %447 = load i32, ptr %446, align 4
  %448 = load i32, ptr %435, align 8
  %449 = udiv i32 %447, 10000
  %450 = select i1 %436, i32 %447, i32 %449
  %451 = icmp eq i32 %448, %450
  br i1 %451, label %452, label %484

452:                                              ; preds = %442, %444
  %453 = phi i64 [ %445, %444 ], [ 0, %442 ]
  %454 = getelementptr inbounds [64 x i32], ptr %8, i64 0, i64 %453
  br label %457

455:                                              ; preds = %478
  %456 = icmp eq i32 %481, 0
  br i1 %456, label %486, label %484

457:                                              ; preds = %478, %452
  %458 = phi i64 [ 0, %452 ], [ %482, %478 ]
  %459 = phi i32 [ 0, %452 ], [ %481, %478 ]
  %460 = getelementptr inbounds %struct.image, ptr %187, i64 %458
  %461 = getelementptr inbounds %struct.slot, ptr %135, i64 %458
  %462 = load ptr, ptr %461, align 8
  %463 = icmp ne ptr %462, null
  %464 = and i1 %434, %463
  br i1 %464, label %465, label %478

465:                                              ; preds = %457
  %466 = getelementptr inbounds i8, ptr %460, i64 28
  %467 = load i32, ptr %466, align 4
  %468 = and i32 %467, -2
  %469 = icmp eq i32 %468, 2
  br i1 %469, label %470, label %478

470:                                              ; preds = %465
  %471 = load i32, ptr %454, align 4
  %472 = getelementptr inbounds i8, ptr %460, i64 32
  %473 = load i32, ptr %472, align 8
  %474 = icmp eq i32 %467, 2
  %475 = udiv i32 %471, 10000
  %476 = select i1 %474, i32 %471, i32 %475
  %477 = icmp eq i32 %473, %476
  br label %478

478:                                              ; preds = %470, %465, %457
  %479 = phi i1 [ %463, %457 ], [ false, %465 ], [ %477, %470 ]
  %480 = zext i1 %479 to i32
  %481 = or i32 %459, %480
  %482 = add nuw nsw i64 %458, 1
  %483 = icmp eq i64 %482, %437
  br i1 %483, label %455, label %457

484:                                              ; preds = %455, %444
  %485 = add i32 %439, 1
  br label %438

486:                                              ; preds = %455
  %487 = getelementptr inbounds i8, ptr %418, i64 16
  %488 = load i32, ptr %487, align 8
  %489 = zext i32 %488 to i64
  %490 = getelementptr inbounds i8, ptr %0, i64 %489
  %491 = call i32 (ptr, i64, ptr, ...) @snprintf(ptr noundef nonnull dereferenceable(1) %7, i64 noundef 4096, ptr noundef nonnull @.str.5, i32 noundef %192, ptr noundef nonnull %6, ptr noundef nonnull %173, ptr noundef %490) #15
  %492 = getelementptr inbounds i8, ptr %418, i64 24
  %493 = load i32, ptr %492, align 8
  %494 = zext i32 %493 to i64
  %495 = getelementptr inbounds i8, ptr %0, i64 %494
  %496 = call ptr @strerror(i32 noundef 2) #15
  %497 = call i32 (i32, ptr, ...) @dprintf(i32 noundef 2, ptr noundef nonnull @.str.14, ptr noundef nonnull %6, ptr noundef %495, ptr noundef nonnull %7, ptr noundef %496) #15
  %498 = load i8, ptr %424, align 8
  %499 = icmp eq i8 %498, 1
  %500 = zext i1 %499 to i32
  %501 = or i32 %417, %500
  %502 = load i32, ptr %77, align 4
  br label %503

503:                                              ; preds = %440, %442, %414, %423, %486
  %504 = phi i32 [ %502, %486 ], [ %415, %423 ], [ %415, %414 ], [ %415, %442 ], [ %415, %440 ]
  %505 = phi i32 [ %501, %486 ], [ %417, %423 ], [ %417, %414 ], [ %417, %442 ], [ %417, %440 ]
  %506 = add nuw nsw i64 %416, 1
  %507 = zext i32 %504 to i64
  %508 = icmp ult i64 %506, %507
  br i1 %508, label %414, label %509

509:                                              ; preds = %503, %169, %184, %165, %129
  %510 = phi ptr [ null, %129 ], [ %135, %165 ], [ %135, %184 ], [ %135, %169 ], [ %135, %503 ]
  call void @llvm.lifetime.end.p0(i64 264, ptr nonnull %8) #13
  call void @llvm.lifetime.end.p0(i64 4096, ptr nonnull %7) #13
  call void @llvm.lifetime.end.p0(i64 4096, ptr nonnull %6) #13
  ret ptr %510
}

declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #1

define noundef ptr @offld_external_hip(ptr noundef %0) local_unnamed_addr #0 {
  %2 = getelementptr inbounds i8, ptr %0, i64 20
  %3 = load i32, ptr %2, align 4
  %4 = icmp eq i32 %3, 0
  br i1 %4, label %8, label %5

5:                                                ; preds = %1
  %6 = getelementptr inbounds i8, ptr %0, i64 32
  %7 = zext i32 %3 to i64
  br label %12

8:                                                ; preds = %12, %1
  %9 = phi i64 [ 88, %1 ], [ %21, %12 ]
  %10 = tail call fastcc ptr @load(ptr noundef nonnull %0, i64 noundef %9) #12
  %11 = icmp eq ptr %10, null
  br i1 %11, label %86, label %24

12:                                               ; preds = %5, %12
  %13 = phi i64 [ 0, %5 ], [ %22, %12 ]
  %14 = phi i64 [ 88, %5 ], [ %21, %12 ]
  %15 = getelementptr inbounds %struct.image, ptr %6, i64 %13, i32 3
  %16 = load i32, ptr %15, align 4
  %17 = zext i32 %16 to i64
  %18 = getelementptr inbounds i8, ptr %0, i64 %17
  %19 = tail call i64 @strlen(ptr noundef nonnull dereferenceable(1) %18) #14
  %20 = add i64 %14, 24
  %21 = add i64 %20, %19
  %22 = add nuw nsw i64 %13, 1
  %23 = icmp eq i64 %22, %7
  br i1 %23, label %8, label %12

24:                                               ; preds = %8
  %25 = load ptr, ptr @region.0, align 8
  %26 = load i32, ptr %2, align 4
  %27 = zext i32 %26 to i64
  %28 = shl nuw nsw i64 %27, 4
  %29 = tail call i64 @getauxval(i64 noundef 6) #15
  %30 = freeze i64 %29
  %31 = add nsw i64 %28, -1
  %32 = add i64 %31, %30
  %33 = urem i64 %32, %30
  %34 = sub nuw i64 %32, %33
  %35 = getelementptr inbounds i8, ptr %25, i64 %34
  tail call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 1 dereferenceable(24) %35, ptr noundef nonnull readonly align 16 dereferenceable(24) @bundle_magic, i64 24, i1 false)
  %36 = getelementptr inbounds i8, ptr %35, i64 24
  %37 = getelementptr inbounds i8, ptr %35, i64 32
  %38 = tail call i64 @getauxval(i64 noundef 6) #15
  %39 = freeze i64 %38
  %40 = add i64 %9, -1
  %41 = add i64 %40, %39
  %42 = urem i64 %41, %39
  %43 = sub nuw i64 %41, %42
  store i64 %43, ptr %37, align 1
  %44 = getelementptr inbounds i8, ptr %35, i64 40
  store i64 0, ptr %44, align 1
  %45 = getelementptr inbounds i8, ptr %35, i64 48
  store i64 30, ptr %45, align 1
  %46 = getelementptr inbounds i8, ptr %35, i64 56
  tail call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 1 dereferenceable(30) %46, ptr noundef nonnull readonly align 16 dereferenceable(30) @host_entry, i64 30, i1 false)
  %47 = load i32, ptr %2, align 4
  %48 = icmp eq i32 %47, 0
  br i1 %48, label %53, label %49

49:                                               ; preds = %24
  %50 = getelementptr inbounds i8, ptr %35, i64 86
  %51 = getelementptr inbounds i8, ptr %0, i64 32
  %52 = ptrtoint ptr %35 to i64
  br label %55

53:                                               ; preds = %79, %24
  %54 = phi i64 [ 1, %24 ], [ %82, %79 ]
  store i64 %54, ptr %36, align 1
  br label %86

55:                                               ; preds = %49, %79
  %56 = phi i32 [ %47, %49 ], [ %80, %79 ]
  %57 = phi i64 [ 0, %49 ], [ %83, %79 ]
  %58 = phi i64 [ 1, %49 ], [ %82, %79 ]
  %59 = phi ptr [ %50, %49 ], [ %81, %79 ]
  %60 = getelementptr inbounds %struct.slot, ptr %10, i64 %57
  %61 = load ptr, ptr %60, align 8
  %62 = icmp eq ptr %61, null
  br i1 %62, label %79, label %63

63:                                               ; preds = %55
  %64 = getelementptr inbounds %struct.image, ptr %51, i64 %57
  %65 = ptrtoint ptr %61 to i64
  %66 = sub i64 %65, %52
  %67 = load i64, ptr %64, align 8
  %68 = getelementptr inbounds i8, ptr %64, i64 20
  %69 = load i32, ptr %68, align 4
  %70 = zext i32 %69 to i64
  %71 = getelementptr inbounds i8, ptr %0, i64 %70
  %72 = tail call i64 @strlen(ptr noundef nonnull readonly dereferenceable(1) %71) #14
  store i64 %66, ptr %59, align 1
  %73 = getelementptr inbounds i8, ptr %59, i64 8
  store i64 %67, ptr %73, align 1
  %74 = getelementptr inbounds i8, ptr %59, i64 16
  store i64 %72, ptr %74, align 1
  %75 = getelementptr inbounds i8, ptr %59, i64 24
  tail call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 1 %75, ptr readonly align 1 %71, i64 %72, i1 false)
  %76 = getelementptr inbounds i8, ptr %75, i64 %72
  %77 = add i64 %58, 1
  %78 = load i32, ptr %2, align 4
  br label %79

79:                                               ; preds = %55, %63
  %80 = phi i32 [ %78, %63 ], [ %56, %55 ]
  %81 = phi ptr [ %76, %63 ], [ %59, %55 ]
  %82 = phi i64 [ %77, %63 ], [ %58, %55 ]
  %83 = add nuw nsw i64 %57, 1
  %84 = zext i32 %80 to i64
  %85 = icmp ult i64 %83, %84
  br i1 %85, label %55, label %53

86:                                               ; preds = %8, %53
  %87 = phi ptr [ %35, %53 ], [ @offld_external_hip.none, %8 ]
  ret ptr %87
}

declare i64 @strlen(ptr nocapture noundef) local_unnamed_addr #2

define noundef ptr @offld_external_cuda(ptr noundef %0) local_unnamed_addr #0 {
  %2 = getelementptr inbounds i8, ptr %0, i64 20
  %3 = load i32, ptr %2, align 4
  %4 = icmp eq i32 %3, 0
  br i1 %4, label %8, label %5

5:                                                ; preds = %1
  %6 = getelementptr inbounds i8, ptr %0, i64 32
  %7 = zext i32 %3 to i64
  br label %12

8:                                                ; preds = %12, %1
  %9 = phi i64 [ 16, %1 ], [ %17, %12 ]
  %10 = tail call fastcc ptr @load(ptr noundef nonnull %0, i64 noundef %9) #12
  %11 = icmp eq ptr %10, null
  br i1 %11, label %74, label %20

12:                                               ; preds = %5, %12
  %13 = phi i64 [ 0, %5 ], [ %18, %12 ]
  %14 = phi i64 [ 16, %5 ], [ %17, %12 ]
  %15 = getelementptr inbounds %struct.image, ptr %6, i64 %13
  %16 = load i64, ptr %15, align 8
  %17 = add i64 %16, %14
  %18 = add nuw nsw i64 %13, 1
  %19 = icmp eq i64 %18, %7
  br i1 %19, label %8, label %12

20:                                               ; preds = %8
  %21 = load ptr, ptr @region.0, align 8
  %22 = load i32, ptr %2, align 4
  %23 = zext i32 %22 to i64
  %24 = shl nuw nsw i64 %23, 4
  %25 = tail call i64 @getauxval(i64 noundef 6) #15
  %26 = freeze i64 %25
  %27 = add nsw i64 %24, -1
  %28 = add i64 %27, %26
  %29 = urem i64 %28, %26
  %30 = sub nuw i64 %28, %29
  %31 = getelementptr inbounds i8, ptr %21, i64 %30
  tail call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 1 dereferenceable(16) %31, ptr noundef nonnull readonly align 8 dereferenceable(16) @offld_external_cuda.none, i64 16, i1 false)
  %32 = getelementptr inbounds i8, ptr %31, i64 16
  %33 = load i32, ptr %2, align 4
  %34 = icmp eq i32 %33, 0
  br i1 %34, label %37, label %35

35:                                               ; preds = %20
  %36 = getelementptr inbounds i8, ptr %0, i64 32
  br label %44

37:                                               ; preds = %68, %20
  %38 = phi ptr [ %32, %20 ], [ %70, %68 ]
  %39 = ptrtoint ptr %38 to i64
  %40 = ptrtoint ptr %31 to i64
  %41 = sub i64 %39, %40
  %42 = add i64 %41, -16
  %43 = getelementptr inbounds i8, ptr %31, i64 8
  store i64 %42, ptr %43, align 8
  br label %74

44:                                               ; preds = %35, %68
  %45 = phi i32 [ %33, %35 ], [ %69, %68 ]
  %46 = phi i64 [ 0, %35 ], [ %71, %68 ]
  %47 = phi ptr [ %32, %35 ], [ %70, %68 ]
  %48 = getelementptr inbounds %struct.image, ptr %36, i64 %46
  %49 = load i64, ptr %48, align 8
  %50 = getelementptr inbounds %struct.slot, ptr %10, i64 %46
  %51 = load ptr, ptr %50, align 8
  %52 = icmp eq ptr %51, null
  %53 = icmp ult i64 %49, 16
  %54 = select i1 %52, i1 true, i1 %53
  br i1 %54, label %68, label %55

55:                                               ; preds = %44
  %56 = getelementptr inbounds i8, ptr %51, i64 16
  %57 = add i64 %49, -16
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 1 %47, ptr nonnull readonly align 1 %56, i64 %57, i1 false)
  %58 = getelementptr inbounds i8, ptr %47, i64 %57
  %59 = load ptr, ptr %50, align 8
  %60 = tail call i64 @getauxval(i64 noundef 6) #15
  %61 = freeze i64 %60
  %62 = add i64 %49, -1
  %63 = add i64 %62, %61
  %64 = urem i64 %63, %61
  %65 = sub nuw i64 %63, %64
  %66 = tail call i32 @munmap(ptr noundef %59, i64 noundef %65) #15
  %67 = load i32, ptr %2, align 4
  br label %68

68:                                               ; preds = %44, %55
  %69 = phi i32 [ %67, %55 ], [ %45, %44 ]
  %70 = phi ptr [ %58, %55 ], [ %47, %44 ]
  %71 = add nuw nsw i64 %46, 1
  %72 = zext i32 %69 to i64
  %73 = icmp ult i64 %71, %72
  br i1 %73, label %44, label %37

74:                                               ; preds = %8, %37
  %75 = phi ptr [ %31, %37 ], [ @offld_external_cuda.none, %8 ]
  ret ptr %75
}

declare i32 @munmap(ptr noundef, i64 noundef) local_unnamed_addr #3

define void @offld_external_unload() local_unnamed_addr #0 {
  %1 = load ptr, ptr @region.0, align 8
  %2 = icmp eq ptr %1, null
  br i1 %2, label %6, label %3

3:                                                ; preds = %0
  %4 = load i64, ptr @region.1, align 8
  %5 = tail call i32 @munmap(ptr noundef nonnull %1, i64 noundef %4) #15
  br label %6

6:                                                ; preds = %3, %0
  store ptr null, ptr @region.0, align 8
  ret void
}

define internal fastcc range(i32 0, 3) i32 @fit_of(ptr nocapture noundef readonly %0, ptr nocapture noundef readonly %1) unnamed_addr #4 {
  %3 = getelementptr inbounds i8, ptr %0, i64 28
  %4 = load i32, ptr %3, align 4
  %5 = icmp eq i32 %4, 1
  br i1 %5, label %32, label %6

6:                                                ; preds = %2
  %7 = and i32 %4, -2
  %8 = icmp eq i32 %7, 2
  br i1 %8, label %9, label %32

9:                                                ; preds = %6
  %10 = getelementptr inbounds i8, ptr %1, i64 260
  %11 = load i32, ptr %10, align 4
  %12 = icmp eq i32 %11, 0
  br i1 %12, label %32, label %13

13:                                               ; preds = %9
  %14 = getelementptr inbounds i8, ptr %1, i64 256
  %15 = load i32, ptr %14, align 4
  %16 = icmp eq i32 %15, 0
  br i1 %16, label %32, label %17

17:                                               ; preds = %13
  %18 = getelementptr inbounds i8, ptr %0, i64 32
  %19 = load i32, ptr %18, align 8
  %20 = icmp eq i32 %4, 2
  %21 = zext i32 %15 to i64
  br label %25

22:                                               ; preds = %25
  %23 = add nuw nsw i64 %26, 1
  %24 = icmp eq i64 %23, %21
  br i1 %24, label %32, label %25

25:                                               ; preds = %17, %22
  %26 = phi i64 [ 0, %17 ], [ %23, %22 ]
  %27 = getelementptr inbounds [64 x i32], ptr %1, i64 0, i64 %26
  %28 = load i32, ptr %27, align 4
  %29 = udiv i32 %28, 10000
  %30 = select i1 %20, i32 %28, i32 %29
  %31 = icmp eq i32 %19, %30
  br i1 %31, label %32, label %22

32:                                               ; preds = %25, %22, %13, %6, %9, %2
  %33 = phi i32 [ 2, %2 ], [ 1, %9 ], [ 1, %6 ], [ 0, %13 ], [ 2, %25 ], [ 0, %22 ]
  ret i32 %33
}

declare ptr @mmap(ptr noundef, i64 noundef, i32 noundef, i32 noundef, i32 noundef, i64 noundef) local_unnamed_addr #3

declare i32 @mprotect(ptr noundef, i64 noundef, i32 noundef) local_unnamed_addr #3

declare i32 @dprintf(i32 noundef, ptr noundef, ...) local_unnamed_addr #5

declare ptr @strerror(i32 noundef) local_unnamed_addr #3

declare ptr @__errno_location() local_unnamed_addr #6

declare i64 @getauxval(i64 noundef) local_unnamed_addr #3

declare noundef i32 @snprintf(ptr noalias nocapture noundef writeonly, i64 noundef, ptr nocapture noundef readonly, ...) local_unnamed_addr #7

declare i32 @strncmp(ptr nocapture noundef, ptr nocapture noundef, i64 noundef) local_unnamed_addr #2

declare noundef i32 @access(ptr nocapture noundef readonly, i32 noundef) local_unnamed_addr #7

declare noundef i32 @open(ptr nocapture noundef readonly, i32 noundef, ...) local_unnamed_addr #8

declare noundef i64 @read(i32 noundef, ptr nocapture noundef, i64 noundef) local_unnamed_addr #8

declare i32 @close(i32 noundef) local_unnamed_addr #5

declare ptr @strstr(ptr noundef, ptr nocapture noundef) local_unnamed_addr #2

declare i64 @strtoul(ptr noundef readonly, ptr nocapture noundef, i32 noundef) local_unnamed_addr #9

declare i32 @dl_iterate_phdr(ptr noundef, ptr noundef) local_unnamed_addr #5

define internal i32 @find_object(ptr nocapture noundef readonly %0, i64 %1, ptr nocapture noundef %2) #0 {
  %4 = getelementptr inbounds i8, ptr %0, i64 24
  %5 = load i16, ptr %4, align 8
  %6 = icmp eq i16 %5, 0
  br i1 %6, label %46, label %7

7:                                                ; preds = %3
  %8 = getelementptr inbounds i8, ptr %0, i64 16
  %9 = load ptr, ptr %8, align 8
  %10 = zext i16 %5 to i64
  br label %11

11:                                               ; preds = %7, %42
  %12 = phi i64 [ 0, %7 ], [ %43, %42 ]
  %13 = phi i1 [ true, %7 ], [ %44, %42 ]
  %14 = getelementptr inbounds %struct.Elf64_Phdr, ptr %9, i64 %12
  %15 = load i32, ptr %14, align 8
  %16 = icmp eq i32 %15, 1
  br i1 %16, label %17, label %42

17:                                               ; preds = %11
  %18 = load i64, ptr %2, align 8
  %19 = load i64, ptr %0, align 8
  %20 = getelementptr inbounds i8, ptr %14, i64 16
  %21 = load i64, ptr %20, align 8
  %22 = add i64 %19, %21
  %23 = sub i64 %18, %22
  %24 = getelementptr inbounds i8, ptr %14, i64 40
  %25 = load i64, ptr %24, align 8
  %26 = icmp ult i64 %23, %25
  br i1 %26, label %27, label %42

27:                                               ; preds = %17
  %28 = ptrtoint ptr %9 to i64
  %29 = tail call i64 @getauxval(i64 noundef 3) #15
  %30 = icmp eq i64 %29, %28
  br i1 %30, label %39, label %31

31:                                               ; preds = %27
  %32 = getelementptr inbounds i8, ptr %0, i64 8
  %33 = load ptr, ptr %32, align 8
  %34 = icmp eq ptr %33, null
  br i1 %34, label %39, label %35

35:                                               ; preds = %31
  %36 = load i8, ptr %33, align 1
  %37 = icmp eq i8 %36, 0
  %38 = select i1 %37, ptr null, ptr %33
  br label %39

39:                                               ; preds = %35, %27, %31
  %40 = phi ptr [ null, %31 ], [ null, %27 ], [ %38, %35 ]
  %41 = getelementptr inbounds i8, ptr %2, i64 8
  store ptr %40, ptr %41, align 8
  br label %46

42:                                               ; preds = %17, %11
  %43 = add nuw nsw i64 %12, 1
  %44 = icmp ult i64 %43, %10
  %45 = icmp eq i64 %43, %10
  br i1 %45, label %46, label %11

46:                                               ; preds = %42, %3, %39
  %47 = phi i1 [ %13, %39 ], [ false, %3 ], [ %44, %42 ]
  %48 = zext i1 %47 to i32
  ret i32 %48
}

declare noundef ptr @realpath(ptr nocapture noundef readonly, ptr noundef) local_unnamed_addr #7

declare ptr @strrchr(ptr noundef, i32 noundef) local_unnamed_addr #2

declare i64 @lseek(i32 noundef, i64 noundef, i32 noundef) local_unnamed_addr #3

declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #10

declare i64 @llvm.fshl.i64(i64, i64, i64) #11

attributes #0 = { nounwind optsize }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { mustprogress nofree nounwind optsize willreturn memory(argmem: read) }
attributes #3 = { nounwind optsize }
attributes #4 = { nofree norecurse nosync nounwind optsize memory(argmem: read) }
attributes #5 = { optsize }
attributes #6 = { mustprogress nofree nosync nounwind optsize willreturn memory(none) }
attributes #7 = { nofree nounwind optsize }
attributes #8 = { nofree optsize }
attributes #9 = { mustprogress nofree nounwind optsize willreturn }
attributes #10 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #11 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #12 = { optsize }
attributes #13 = { nounwind }
attributes #14 = { nounwind optsize willreturn memory(read) }
attributes #15 = { nounwind optsize }
attributes #16 = { nounwind optsize willreturn memory(none) }

