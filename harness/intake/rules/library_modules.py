"""The modules that lie in the libraries which a region may import. Generated: `list_modules.py`."""

from harness.intake.rules.rule_tables import words

MODULES = words("""
collections.abc numpy.char numpy.conftest numpy.dtypes numpy.exceptions numpy.fft numpy.lib
numpy.lib.mixins numpy.lib.stride_tricks numpy.linalg numpy.linalg.lapack_lite numpy.ma
numpy.ma.extras numpy.ma.mrecords numpy.ma.testutils numpy.matlib numpy.matrixlib
numpy.matrixlib.defmatrix numpy.polynomial numpy.polynomial.chebyshev numpy.polynomial.hermite
numpy.polynomial.hermite_e numpy.polynomial.laguerre numpy.polynomial.legendre
numpy.polynomial.polynomial numpy.polynomial.polyutils numpy.random numpy.random.bit_generator
numpy.random.mtrand numpy.rec numpy.strings numpy.typing numpy.typing.mypy_plugin numpy.version
torch.accelerator torch.accelerator.graphs torch.accelerator.memory torch.amp
torch.amp.autocast_mode torch.amp.grad_scaler torch.autograd torch.autograd.anomaly_mode
torch.autograd.forward_ad torch.autograd.function torch.autograd.functional torch.autograd.grad_mode
torch.autograd.graph torch.backends torch.backends.cpu torch.backends.cuda torch.backends.cudnn
torch.backends.cudnn.rnn torch.backends.cusparselt torch.backends.kleidiai torch.backends.mha
torch.backends.miopen torch.backends.mkl torch.backends.mkldnn torch.backends.mps
torch.backends.nnpack torch.backends.openmp torch.backends.opt_einsum torch.backends.python_native
torch.backends.quantized torch.backends.xnnpack torch.compiler torch.contrib torch.cpu torch.cpu.amp
torch.cpu.amp.autocast_mode torch.cpu.amp.grad_scaler torch.cuda torch.cuda.amp
torch.cuda.amp.autocast_mode torch.cuda.amp.common torch.cuda.amp.grad_scaler torch.cuda.comm
torch.cuda.graphs torch.cuda.green_contexts torch.cuda.memory torch.cuda.nccl torch.cuda.nvtx
torch.cuda.random torch.cuda.sparse torch.cuda.streams torch.distributions
torch.distributions.bernoulli torch.distributions.beta torch.distributions.binomial
torch.distributions.categorical torch.distributions.cauchy torch.distributions.chi2
torch.distributions.constraint_registry torch.distributions.constraints
torch.distributions.continuous_bernoulli torch.distributions.dirichlet
torch.distributions.distribution torch.distributions.exp_family torch.distributions.exponential
torch.distributions.fishersnedecor torch.distributions.gamma torch.distributions.generalized_pareto
torch.distributions.geometric torch.distributions.gumbel torch.distributions.half_cauchy
torch.distributions.half_normal torch.distributions.independent torch.distributions.inverse_gamma
torch.distributions.kl torch.distributions.kumaraswamy torch.distributions.laplace
torch.distributions.lkj_cholesky torch.distributions.log_normal torch.distributions.logistic_normal
torch.distributions.lowrank_multivariate_normal torch.distributions.mixture_same_family
torch.distributions.multinomial torch.distributions.multivariate_normal
torch.distributions.negative_binomial torch.distributions.normal
torch.distributions.one_hot_categorical torch.distributions.pareto torch.distributions.poisson
torch.distributions.relaxed_bernoulli torch.distributions.relaxed_categorical
torch.distributions.studentT torch.distributions.transformed_distribution
torch.distributions.transforms torch.distributions.uniform torch.distributions.utils
torch.distributions.von_mises torch.distributions.weibull torch.distributions.wishart torch.fft
torch.func torch.functional torch.jit torch.linalg torch.masked torch.masked.maskedtensor
torch.masked.maskedtensor.binary torch.masked.maskedtensor.creation
torch.masked.maskedtensor.passthrough torch.masked.maskedtensor.reductions
torch.masked.maskedtensor.unary torch.mps torch.mps.event torch.nested torch.nn torch.nn.attention
torch.nn.attention.bias torch.nn.attention.experimental torch.nn.attention.flex_attention
torch.nn.attention.varlen torch.nn.backends torch.nn.backends.thnn torch.nn.common_types
torch.nn.functional torch.nn.grad torch.nn.init torch.nn.intrinsic torch.nn.intrinsic.modules
torch.nn.intrinsic.modules.fused torch.nn.intrinsic.qat torch.nn.intrinsic.qat.modules
torch.nn.intrinsic.qat.modules.conv_fused torch.nn.intrinsic.qat.modules.linear_fused
torch.nn.intrinsic.qat.modules.linear_relu torch.nn.intrinsic.quantized
torch.nn.intrinsic.quantized.dynamic torch.nn.intrinsic.quantized.dynamic.modules
torch.nn.intrinsic.quantized.dynamic.modules.linear_relu torch.nn.intrinsic.quantized.modules
torch.nn.intrinsic.quantized.modules.bn_relu torch.nn.intrinsic.quantized.modules.conv_relu
torch.nn.intrinsic.quantized.modules.linear_relu torch.nn.modules torch.nn.modules.activation
torch.nn.modules.adaptive torch.nn.modules.batchnorm torch.nn.modules.channelshuffle
torch.nn.modules.container torch.nn.modules.conv torch.nn.modules.distance torch.nn.modules.dropout
torch.nn.modules.flatten torch.nn.modules.fold torch.nn.modules.instancenorm torch.nn.modules.lazy
torch.nn.modules.linear torch.nn.modules.linear_cross_entropy
torch.nn.modules.linear_cross_entropy_options torch.nn.modules.loss torch.nn.modules.module
torch.nn.modules.normalization torch.nn.modules.padding torch.nn.modules.pixelshuffle
torch.nn.modules.pooling torch.nn.modules.rnn torch.nn.modules.sparse torch.nn.modules.transformer
torch.nn.modules.upsampling torch.nn.modules.utils torch.nn.parallel torch.nn.parallel.comm
torch.nn.parallel.scatter_gather torch.nn.parameter torch.nn.qat torch.nn.qat.dynamic
torch.nn.qat.dynamic.modules torch.nn.qat.dynamic.modules.linear torch.nn.qat.modules
torch.nn.qat.modules.conv torch.nn.qat.modules.embedding_ops torch.nn.qat.modules.linear
torch.nn.quantizable torch.nn.quantizable.modules torch.nn.quantizable.modules.activation
torch.nn.quantizable.modules.rnn torch.nn.quantized torch.nn.quantized.dynamic
torch.nn.quantized.dynamic.modules torch.nn.quantized.dynamic.modules.conv
torch.nn.quantized.dynamic.modules.linear torch.nn.quantized.dynamic.modules.rnn
torch.nn.quantized.functional torch.nn.quantized.modules torch.nn.quantized.modules.activation
torch.nn.quantized.modules.batchnorm torch.nn.quantized.modules.conv
torch.nn.quantized.modules.dropout torch.nn.quantized.modules.embedding_ops
torch.nn.quantized.modules.functional_modules torch.nn.quantized.modules.linear
torch.nn.quantized.modules.normalization torch.nn.quantized.modules.rnn
torch.nn.quantized.modules.utils torch.nn.utils torch.nn.utils.clip_grad
torch.nn.utils.convert_parameters torch.nn.utils.fusion torch.nn.utils.init
torch.nn.utils.memory_format torch.nn.utils.parametrizations torch.nn.utils.parametrize
torch.nn.utils.prune torch.nn.utils.rnn torch.nn.utils.stateless torch.optim torch.optim.adadelta
torch.optim.adagrad torch.optim.adam torch.optim.adamax torch.optim.adamw torch.optim.asgd
torch.optim.lbfgs torch.optim.lr_scheduler torch.optim.nadam torch.optim.optimizer torch.optim.radam
torch.optim.rmsprop torch.optim.rprop torch.optim.sgd torch.optim.sparse_adam torch.optim.swa_utils
torch.quasirandom torch.random torch.return_types torch.signal torch.sparse
torch.sparse.semi_structured torch.special torch.torch_version torch.utils torch.utils.checkpoint
torch.utils.data torch.utils.data.backward_compatibility torch.utils.data.dataloader
torch.utils.data.dataset torch.utils.data.graph torch.utils.data.graph_settings
torch.utils.data.sampler torch.version torch.xpu torch.xpu.graphs torch.xpu.memory torch.xpu.random
torch.xpu.streams
""")
"""By the path under which each lies; a plain `import` names others."""

_PAIRS = words("""
contextlib.abc=abc dataclasses.abc=abc dataclasses.copy=copy dataclasses.keyword=keyword
dataclasses.re=re fractions.re=re numpy.conftest.hypothesis=hypothesis numpy.conftest.pytest=pytest
numpy.emath=numpy.lib.scimath numpy.lib.mixins.um=numpy._core.umath numpy.ma.extras.ma=numpy.ma.core
numpy.ma.mrecords.ma=numpy.ma numpy.ma.testutils.umath=numpy._core.umath
numpy.matlib.char=numpy.char numpy.matlib.dtypes=numpy.dtypes numpy.matlib.emath=numpy.lib.scimath
numpy.matlib.exceptions=numpy.exceptions numpy.matlib.fft=numpy.fft numpy.matlib.lib=numpy.lib
numpy.matlib.linalg=numpy.linalg numpy.matlib.ma=numpy.ma numpy.matlib.polynomial=numpy.polynomial
numpy.matlib.random=numpy.random numpy.matlib.rec=numpy.rec numpy.matlib.strings=numpy.strings
numpy.matlib.typing=numpy.typing numpy.matrixlib.defmatrix.N=numpy._core.numeric
numpy.matrixlib.defmatrix.ast=ast numpy.polynomial.chebyshev.pu=numpy.polynomial.polyutils
numpy.polynomial.hermite.pu=numpy.polynomial.polyutils
numpy.polynomial.hermite_e.pu=numpy.polynomial.polyutils
numpy.polynomial.laguerre.pu=numpy.polynomial.polyutils
numpy.polynomial.legendre.pu=numpy.polynomial.polyutils
numpy.polynomial.polynomial.pu=numpy.polynomial.polyutils numpy.random.bit_generator.abc=abc
numpy.random.bit_generator.re=re numpy.typing.mypy_plugin.mypy=mypy statistics.random=random
torch.amp.grad_scaler.abc=collections.abc torch.autograd.function.hooks=torch.utils.hooks
torch.autograd.functional.fwAD=torch.autograd.forward_ad torch.autograd.graph.abc=abc
torch.autograd.graph.contextvars=contextvars torch.autograd.graph.logging=logging
torch.backends.cudnn.m=torch.backends.cudnn torch.backends.cudnn.rnn.m=torch.backends.cudnn.rnn
torch.backends.m=torch.backends torch.backends.miopen.m=torch.backends.miopen
torch.backends.mkldnn.m=torch.backends.mkldnn torch.backends.opt_einsum.m=torch.backends.opt_einsum
torch.backends.python_native.m=torch.backends.python_native
torch.backends.quantized.m=torch.backends.quantized torch.backends.xnnpack.m=torch.backends.xnnpack
torch.cuda.graphs.typing=typing
torch.distributions.bernoulli.constraints=torch.distributions.constraints
torch.distributions.beta.constraints=torch.distributions.constraints
torch.distributions.binomial.constraints=torch.distributions.constraints
torch.distributions.categorical.constraints=torch.distributions.constraints
torch.distributions.cauchy.constraints=torch.distributions.constraints
torch.distributions.chi2.constraints=torch.distributions.constraints
torch.distributions.constraint_registry.constraints=torch.distributions.constraints
torch.distributions.constraint_registry.transforms=torch.distributions.transforms
torch.distributions.continuous_bernoulli.constraints=torch.distributions.constraints
torch.distributions.dirichlet.constraints=torch.distributions.constraints
torch.distributions.distribution.constraints=torch.distributions.constraints
torch.distributions.exponential.constraints=torch.distributions.constraints
torch.distributions.fishersnedecor.constraints=torch.distributions.constraints
torch.distributions.gamma.constraints=torch.distributions.constraints
torch.distributions.generalized_pareto.constraints=torch.distributions.constraints
torch.distributions.geometric.constraints=torch.distributions.constraints
torch.distributions.gumbel.constraints=torch.distributions.constraints
torch.distributions.half_cauchy.constraints=torch.distributions.constraints
torch.distributions.half_normal.constraints=torch.distributions.constraints
torch.distributions.independent.constraints=torch.distributions.constraints
torch.distributions.inverse_gamma.constraints=torch.distributions.constraints
torch.distributions.kumaraswamy.constraints=torch.distributions.constraints
torch.distributions.laplace.constraints=torch.distributions.constraints
torch.distributions.lkj_cholesky.constraints=torch.distributions.constraints
torch.distributions.log_normal.constraints=torch.distributions.constraints
torch.distributions.logistic_normal.constraints=torch.distributions.constraints
torch.distributions.lowrank_multivariate_normal.constraints=torch.distributions.constraints
torch.distributions.mixture_same_family.constraints=torch.distributions.constraints
torch.distributions.multinomial.constraints=torch.distributions.constraints
torch.distributions.multivariate_normal.constraints=torch.distributions.constraints
torch.distributions.negative_binomial.F=torch.nn.functional
torch.distributions.negative_binomial.constraints=torch.distributions.constraints
torch.distributions.normal.constraints=torch.distributions.constraints
torch.distributions.one_hot_categorical.constraints=torch.distributions.constraints
torch.distributions.pareto.constraints=torch.distributions.constraints
torch.distributions.poisson.constraints=torch.distributions.constraints
torch.distributions.relaxed_bernoulli.constraints=torch.distributions.constraints
torch.distributions.relaxed_categorical.constraints=torch.distributions.constraints
torch.distributions.studentT.constraints=torch.distributions.constraints
torch.distributions.transformed_distribution.constraints=torch.distributions.constraints
torch.distributions.transforms.F=torch.nn.functional
torch.distributions.transforms.constraints=torch.distributions.constraints
torch.distributions.uniform.constraints=torch.distributions.constraints
torch.distributions.utils.F=torch.nn.functional
torch.distributions.von_mises.constraints=torch.distributions.constraints
torch.distributions.weibull.constraints=torch.distributions.constraints
torch.distributions.wishart.constraints=torch.distributions.constraints
torch.functional.F=torch.nn.functional torch.nested.F=torch.nn.functional
torch.nn.attention.bias.F=torch.nn.functional torch.nn.attention.flex_attention.typing=typing
torch.nn.attention.varlen.logging=logging torch.nn.functional.grad=torch.nn.grad
torch.nn.modules.activation.F=torch.nn.functional torch.nn.modules.adaptive.F=torch.nn.functional
torch.nn.modules.batchnorm.F=torch.nn.functional torch.nn.modules.batchnorm.init=torch.nn.init
torch.nn.modules.channelshuffle.F=torch.nn.functional
torch.nn.modules.container.container_abcs=collections.abc
torch.nn.modules.conv.F=torch.nn.functional torch.nn.modules.conv.init=torch.nn.init
torch.nn.modules.distance.F=torch.nn.functional torch.nn.modules.dropout.F=torch.nn.functional
torch.nn.modules.fold.F=torch.nn.functional torch.nn.modules.instancenorm.F=torch.nn.functional
torch.nn.modules.linear.F=torch.nn.functional torch.nn.modules.linear.init=torch.nn.init
torch.nn.modules.loss.F=torch.nn.functional torch.nn.modules.normalization.F=torch.nn.functional
torch.nn.modules.normalization.init=torch.nn.init torch.nn.modules.padding.F=torch.nn.functional
torch.nn.modules.pixelshuffle.F=torch.nn.functional torch.nn.modules.pooling.F=torch.nn.functional
torch.nn.modules.rnn.init=torch.nn.init torch.nn.modules.sparse.F=torch.nn.functional
torch.nn.modules.sparse.init=torch.nn.init torch.nn.modules.transformer.F=torch.nn.functional
torch.nn.modules.transformer.copy=copy torch.nn.modules.upsampling.F=torch.nn.functional
torch.nn.parallel.comm.nccl=torch.cuda.nccl torch.nn.utils.clip_grad.typing=typing
torch.nn.utils.fusion.copy=copy torch.nn.utils.parametrizations.F=torch.nn.functional
torch.nn.utils.parametrizations.parametrize=torch.nn.utils.parametrize
torch.optim.optimizer.hooks=torch.utils.hooks torch.optim.sparse_adam.F=torch.optim._functional
torch.return_types.return_types=torch._C._return_types
torch.utils.checkpoint.fx_traceback=torch.fx.traceback torch.utils.checkpoint.uuid=uuid
torch.utils.data.dataloader.dist=torch.distributed torch.utils.data.dataloader.logging=logging
torch.utils.data.dataloader.queue=queue torch.xpu.graphs.typing=typing typing_extensions.abc=abc
typing_extensions.keyword=keyword typing_extensions.typing=typing
""")
CARRIED_MODULES = dict(each.split("=") for each in sorted(_PAIRS))
"""Modules under a path that is not their own, each with its own."""
